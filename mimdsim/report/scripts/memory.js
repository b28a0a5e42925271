// Memory over the program: of the selected tile, else of the fullest one, by category.
let fullest = null; // {tile, superstep, bytes} of the whole run

function findFullest() {
  let best = 0;
  for (let at = 1; at < memory.length; at++) if (memory[at] > memory[best]) best = at;
  fullest = { tile: best % facts.tiles, superstep: Math.floor(best / facts.tiles), bytes: memory[best] };
}

/** Map from category to bytes by superstep on a tile, the largest category first. */
function byCategory(tile) {
  const found = new Map(), get = name => {
    if (!found.has(name)) found.set(name, new Float64Array(facts.steps));
    return found.get(name);
  };
  get("code").fill(columns.code[tile]);
  get("vertices").fill(columns.vertices[tile]);
  const buffers = get("exchange buffers");
  for (let superstep = 0; superstep < facts.steps; superstep++) {
    buffers[superstep] = columns.buffers.at(superstep, tile);
  }
  for (let variable = 0; variable < facts.variables.length; variable++) {
    const held = bytesOn(variable, tile);
    if (!held) continue;
    const category = get(facts.categories[variable]);
    for (let at = columns.live[2 * variable]; at <= columns.live[2 * variable + 1]; at++) category[at] += held;
  }
  return [...found].filter(([, values]) => maximum(values) > 0).sort((a, b) => maximum(b[1]) - maximum(a[1]));
}

/** The colour of a category, the same on every tile and in the figure of all tiles. */
function colourOf(category) {
  return facts.category_colours[category] || "#bbbbbb";
}

function drawMemory() {
  const tile = state.tile >= 0 ? state.tile : fullest.tile, peak = peakOf(tile), parts = byCategory(tile);
  const words = state.tile >= 0 && tile !== fullest.tile ? "" : ", the fullest";
  element("walk-memory-title").textContent = `Memory over the program on tile ${tile}${words}`;
  const told = bytes(memory[peak * facts.tiles + tile]), limit = bytes(facts.limit_bytes);
  element("walk-memory-peak").replaceChildren(`Its peak is ${told} of ${limit}, in `, superstepLink(peak),
    `. The fullest tile of the run is `, tileLink(fullest.tile), ` with ${bytes(fullest.bytes)} in `,
    superstepLink(fullest.superstep), ". Click the chart to select a superstep.");
  const stacked = new Float64Array(facts.steps), series = [];
  parts.forEach(([category, values]) => {
    values.forEach((held, superstep) => { stacked[superstep] += held; });
    const colour = colourOf(category);
    series.unshift({ label: category, colour, fill: colour, values: Array.from(stacked), own: values });
  });
  const marks = [{ at: peak }];
  if (state.superstep >= 0) marks.push({ at: state.superstep, colour: ink().ink });
  curve("walk-memory", upTo(facts.steps), series, { height: 300, xLabel: "superstep", shown: bytes, marks,
    sayX: sayStep, stepped: true, onClick: superstep => select({ superstep, timestep: -1 }) });
}

/** Every variable: where it is, when, and how many bytes. */
function drawVariables() {
  const tile = state.tile >= 0 ? state.tile : fullest.tile, rows = [];
  for (let variable = 0; variable < facts.variables.length; variable++) {
    const [from, to] = heldBy(variable), first = columns.live[2 * variable], last = columns.live[2 * variable + 1];
    let all = 0;
    for (let at = from; at < to; at++) all += columns.holding_bytes[at];
    const always = first === 0 && last === facts.steps - 1;
    rows.push([facts.variables[variable], facts.categories[variable], size(all), count(to - from),
      size(bytesOn(variable, tile)), always ? "always" : superstepLink(first), always ? "" : superstepLink(last)]);
  }
  rows.sort((a, b) => b[2].value - a[2].value);
  const most = 400, cut = rows.length > most ? ` The ${most} largest of ${thousands(rows.length)} are listed.` : "";
  element("walk-variables").replaceChildren(tableOf("walk-variables-table", "Variables, largest first",
    ["variable", "category", "on all tiles", "tiles", `on tile ${tile}`, "live from", "to"], rows.slice(0, most),
    `Code, vertices and exchange buffers lie on the tiles beside these.${cut}`));
}

function startMemory() {
  findFullest();
  views.push(changed => {
    if (changed.has("tile") || changed.has("superstep")) drawMemory();
    if (changed.has("tile")) drawVariables();
  });
}
