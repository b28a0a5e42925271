// Sliders, fields, keys and the address, all of them views of the one selection.
let playing = 0;

function drawControls() {
  const { superstep, tile } = state, row = windowRow(superstep);
  element("walk-superstep-slider").value = String(Math.max(0, superstep));
  element("walk-every").setAttribute("aria-pressed", String(superstep < 0));
  element("walk-superstep-words").textContent = superstep < 0 ? "all supersteps together"
    : `${superstep} of ${facts.steps - 1}: ${facts.supersteps[superstep]} (${facts.spans[superstep].phase})`;
  element("walk-timestep-row").hidden = row < 0;
  element("walk-timestep-slider").value = String(state.timestep);
  element("walk-timestep-words").textContent = state.timestep < 0 ? "all timesteps together"
    : `timestep ${columns.window_timesteps[state.timestep]} (busy cycles only)`;
  element("walk-measure").value = state.measure;
  element("walk-phase").value = state.phase;
  if (element("walk-text").value !== state.text) element("walk-text").value = state.text;
  element("walk-selected").replaceChildren("Selected: ", make("b", {}, tile < 0 ? "no tile" : tileWords(tile)), " · ",
    make("b", {}, superstep < 0 ? "all supersteps" : `superstep ${superstep}, ${facts.supersteps[superstep]}`));
}

/** One superstep on or back, among those that pass the filters; before the first: all of them together. */
function moveSuperstep(by) {
  const { shown } = picture;
  if (!shown.length) return;
  let at = shown.indexOf(state.superstep);
  if (at < 0) at = shown.findIndex(one => one > state.superstep) - (by > 0 ? 1 : 0);
  const next = at + by;
  const past = next < 0 ? -1 : shown[Math.min(next, shown.length - 1)];
  select({ superstep: state.superstep < 0 && by < 0 ? -1 : past, timestep: -1 });
}

function moveTile(by) {
  select({ tile: state.tile < 0 ? 0 : Math.max(0, Math.min(facts.tiles - 1, state.tile + by)) });
}

const UNSAID = ["and", "at", "in", "of", "the"];

/** From superstep to superstep until the last one, or until it is stopped. */
function play() {
  const button = element("walk-play");
  if (playing) {
    clearInterval(playing);
    playing = 0;
  } else {
    playing = setInterval(() => {
      const last = picture.shown[picture.shown.length - 1];
      if (state.superstep >= last) play();
      else moveSuperstep(1);
    }, 400);
  }
  button.textContent = playing ? "Stop" : "Play";
}

function wordsOf(text) {
  return text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(word => word && !UNSAID.includes(word));
}

/** The longest superstep whose name has the text, or whose name, operations, layers and phase begin with all its words:
 * "selection of hidden0", which its gradient is not. -1 for none. */
function longestSuperstep(wanted) {
  const words = wordsOf(wanted), gradient = words.includes("gradient");
  const isMeant = [at => facts.supersteps[at].toLowerCase().includes(wanted), at => {
    const span = facts.spans[at], parts = span.parts.map(part => `${part.operation} ${part.layer}`);
    const op = gradient || !wordsOf(span.op).includes("gradient") ? span.op : "";
    const known = wordsOf([op, span.name, span.phase, ...parts].join(" "));
    return words.length && words.every(word => known.some(
      has => has.startsWith(word) || (has.length > 4 && word.startsWith(has))));
  }];
  const all = [...facts.supersteps.keys()];
  const found = isMeant.map(meant => all.filter(meant)).find(some => some.length) ?? [];
  return found.toSorted((one, other) => cyclesOf(facts.spans[other]) - cyclesOf(facts.spans[one]))[0] ?? -1;
}

/** A tile by its number, the longest superstep of a name, or the busiest tile of a layer, by part of its name. */
function search(text) {
  const wanted = text.trim().toLowerCase(), number = /^(?:tile\s*)?([\d,]+)$/.exec(wanted);
  let tile = -1, superstep = -1;
  if (number) tile = Number(number[1].replaceAll(",", ""));
  else if (wanted) {
    const layers = new Set(facts.layers.flatMap((name, at) => (name.toLowerCase().includes(wanted) ? [at] : [])));
    const busy = row("busy", -1);
    facts.layer_of.forEach((layer, at) => {
      if (layers.has(layer) && (tile < 0 || busy[at] > busy[tile])) tile = at;
    });
  }
  if (wanted && !number) superstep = longestSuperstep(wanted);
  const found = tile >= 0 && tile < facts.tiles;
  element("walk-search-words").textContent = found || superstep >= 0 || !wanted ? ""
    : `No tile and no layer is called "${text.trim()}", and no superstep.`;
  if (found) select({ tile });
  else if (superstep >= 0) select({ superstep, timestep: -1 });
}

function clear() {
  if (playing) play();
  element("walk-search").value = "";
  element("walk-search-words").textContent = "";
  select({ tile: -1, superstep: -1, timestep: -1, phase: "", text: "" });
}

const KEYS = { ArrowLeft: () => moveSuperstep(-1), ArrowRight: () => moveSuperstep(1), ArrowUp: () => moveTile(-1),
  ArrowDown: () => moveTile(1), Escape: clear, "/": () => element("walk-search").focus() };

/** Keys belong to the section only while it has the focus, so that the page scrolls elsewhere. */
function onKey(event) {
  const { target } = event, act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = target.matches("input[type=search], textarea, select");
  if (event.key !== "Escape" && (typing || target.matches("input[type=range]"))) return;
  event.preventDefault();
  if (event.key === "Escape" && typing) target.blur();
  act();
}

let known = ""; // the address that was last read or written

function readAddress() {
  known = location.hash;
  const asked = new URLSearchParams(location.hash.slice(1));
  const get = (name, below) => {
    const value = asked.get(name);
    return value !== null && /^\d+$/.test(value) && Number(value) < below ? Number(value) : -1;
  };
  if (!["tile", "superstep", "measure", "timestep"].some(name => asked.has(name))) return false;
  const measure = Object.hasOwn(measures, asked.get("measure") ?? "") ? asked.get("measure") : "busy";
  select({ tile: get("tile", facts.tiles), superstep: get("superstep", facts.steps), measure,
    timestep: get("timestep", columns.window_timesteps.length) });
  return true;
}

/** A link to a selection leads to the walk even if nothing is selected anew; one to a section leaves the address of
 * what is selected as it is. */
function follow(event) {
  const address = event.target.closest?.("a[href^='#']")?.hash;
  if (!address || event.ctrlKey || event.metaKey) return;
  const selects = address.includes("="), chosen = known.includes("=");
  if (!selects && !chosen) return;
  event.preventDefault();
  if (selects) {
    history.pushState(null, "", address);
    readAddress();
  }
  showSection(selects ? "walk" : address.slice(1));
}

function showSection(name) {
  const heading = element(name), focused = name === "walk" ? element("walk-root") : heading; // where keys act at once
  focused.tabIndex = -1;
  focused.focus({ preventScroll: true });
  heading.scrollIntoView();
}

function writeAddress() {
  if (location.hash !== known) return; // an address that is yet to be read wins over what is selected
  const asked = new URLSearchParams();
  if (state.tile >= 0) asked.set("tile", state.tile);
  if (state.superstep >= 0) asked.set("superstep", state.superstep);
  if (state.measure !== "busy") asked.set("measure", state.measure);
  if (state.timestep >= 0) asked.set("timestep", state.timestep);
  const address = asked.toString();
  if (address !== location.hash.slice(1) && (address || /[=]/.test(location.hash))) {
    history.replaceState(null, "", `#${address || "walk"}`);
    known = location.hash;
  }
}

function startControls() {
  const measure = element("walk-measure");
  for (const { name, label } of Object.values(measures)) measure.append(make("option", { value: name }, label));
  const phase = element("walk-phase");
  phase.append(make("option", { value: "" }, "all phases"));
  for (const name of phases()) phase.append(make("option", { value: name }, name));
  element("walk-superstep-slider").max = String(facts.steps - 1);
  element("walk-timestep-slider").max = String(columns.window_timesteps.length - 1);
  const on = (id, event, act) => element(id).addEventListener(event, ({ target }) => act(target.value));
  on("walk-measure", "change", value => select({ measure: value }));
  on("walk-phase", "change", value => select({ phase: value }));
  on("walk-text", "input", value => select({ text: value }));
  element("walk-log").addEventListener("change", event => select({ log: event.target.checked }));
  element("walk-own").addEventListener("change", event => select({ own: event.target.checked }));
  on("walk-superstep-slider", "input", value => select({ superstep: Number(value), timestep: -1 }));
  on("walk-timestep-slider", "input", value => select({ timestep: Number(value), measure: "busy" }));
  on("walk-every", "click", () => select({ superstep: -1, timestep: -1 }));
  on("walk-play", "click", play);
  on("walk-clear", "click", clear);
  on("walk-busiest", "click", () => select({ tile: largest(row("busy", -1), 1)[0] ?? 0 }));
  on("walk-fullest", "click", () => select({ tile: fullest.tile }));
  on("walk-search", "change", search);
  element("walk-search").addEventListener("keydown", event => {
    if (event.key === "Enter") search(event.target.value);
  });
  element("walk-root").addEventListener("keydown", onKey);
  document.addEventListener("click", follow);
  window.addEventListener("hashchange", () => { if (readAddress()) showSection("walk"); });
  views.push(() => {
    drawControls();
    writeAddress();
  });
}
