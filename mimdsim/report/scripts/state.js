// What is selected, and who is told when it changes. tile, superstep, timestep: -1 for none (all of them together).
const state = { tile: -1, superstep: -1, timestep: -1, measure: "busy", phase: "", text: "", lying: "peak",
  own: false, log: false };
const views = []; // functions of the set of changed names, in the order of the page
const waiting = new Set();
let drawing = 0;

/** Change the selection; the views are drawn once, with the next frame. */
function select(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (state[name] !== value) {
      state[name] = value;
      waiting.add(name);
    }
  }
  if (waiting.size && !drawing) drawing = requestAnimationFrame(drawAll);
}

function drawAll() {
  drawing = 0;
  const changed = new Set(waiting);
  waiting.clear();
  const held = element("walk-root").contains(document.activeElement);
  const used = document.activeElement.closest("#walk-root [id]"), before = used && used.getBoundingClientRect().top;
  for (const view of views) view(changed);
  // panels above may have grown: what was clicked stays where it is
  const now = used && element(used.id);
  // keys go on acting where the button that was pressed is drawn no more
  if (held && document.activeElement === document.body) element("walk-root").focus({ preventScroll: true });
  if (now) window.scrollBy(0, now.getBoundingClientRect().top - before);
}

/** Draw everything anew, now: after a change of size or colours. */
function redraw() {
  for (const name of Object.keys(state)) waiting.add(name);
  drawAll();
}

function element(id) {
  return document.getElementById(id);
}

/** A new element: its properties, then its children (texts or elements). Names of a profile only go in as texts. */
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 3 });

function thousands(value) {
  return Math.abs(value) < 10 && !Number.isInteger(value) ? some.format(value) : whole.format(value);
}

/** How many there are of something: "1 superstep", "66 supersteps". */
function counted(value, one) {
  return `${thousands(value)} ${one}${value === 1 ? "" : "s"}`;
}

/** To one decimal, a tie to the even digit, as in the tables that Python writes. */
function rounded(value) {
  const tenths = Math.round(10 * value);
  return ((Math.abs((10 * value) % 1) === 0.5 && tenths % 2 ? tenths - 1 : tenths) / 10).toFixed(1);
}

function bytes(value) {
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(value) >= factor) return `${rounded(value / factor)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

function share(part, total) {
  if (!total) return "–";
  const percent = (100 * part) / total;
  return percent > 0 && percent < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
}

/** "superstep 7, LIF update", or "all supersteps together". */
function superstepWords(superstep) {
  return superstep < 0 ? "all supersteps together" : `superstep ${superstep}, ${facts.supersteps[superstep]}`;
}

/** A link that selects, as a button. */
function link(text, changes) {
  const button = make("button", { type: "button", className: "walk-link" }, text);
  button.addEventListener("click", () => select(changes));
  return button;
}

function tileLink(tile) {
  return tile < 0 ? "none" : link(`tile ${tile}`, { tile });
}

function superstepLink(superstep) {
  return superstep < 0 ? "none" : link(facts.supersteps[superstep], { superstep });
}
