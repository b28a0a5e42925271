// What tiles are coloured by. row(superstep): a number for every tile; row(-1): all supersteps together.
// combine: how supersteps are put together; shown: how a number is written.
const measures = {};
const kept = new Map(); // all supersteps together, by measure

function row(name, superstep) {
  if (superstep >= 0) return measures[name].row(superstep);
  if (!kept.has(name)) kept.set(name, together(measures[name]));
  return kept.get(name);
}

function together(measure) {
  if (measure.whole) return measure.whole();
  const found = new Float64Array(facts.tiles);
  for (let superstep = 0; superstep < facts.steps; superstep++) {
    const values = measure.row(superstep);
    for (let tile = 0; tile < facts.tiles; tile++) {
      if (measure.combine === "max") found[tile] = Math.max(found[tile], values[tile]);
      else found[tile] += values[tile];
    }
  }
  return found;
}

/** Bytes in use on every tile in a superstep. */
function memoryRow(superstep) {
  return memory.subarray(superstep * facts.tiles, (superstep + 1) * facts.tiles);
}

function addMeasure(name, label, unit, measure) {
  measures[name] = { name, label, unit, shown: unit === "bytes" ? bytes : thousands, combine: "sum", bySuperstep: true,
    ...measure };
}

/** A measure that is a column; where the page has only sums over the supersteps, one for all of them. */
function addColumn(name, label, unit, combine = "sum") {
  const column = columns[name];
  if (column.count === facts.steps) {
    const whole = combine === "sum" ? () => column.total() : undefined;
    addMeasure(name, label, unit, { combine, whole, row: superstep => column.row(superstep),
      some: superstep => [column.first[superstep], column.some(superstep)] });
  } else if (name !== "contexts") {
    addMeasure(name, label, unit, { bySuperstep: false, row: () => column.row(0), whole: () => column.row(0) });
  }
}

function defineMeasures() {
  addColumn("busy", "busy cycles", "cycles");
  addMeasure("idle", "idle cycles (compute time minus busy)", "cycles", { row: idle });
  addMeasure("memory", "memory in use", "bytes", { combine: "max", row: memoryRow });
  addColumn("received", "bytes received", "bytes");
  addColumn("sent", "bytes sent", "bytes");
  addColumn("exchange", "exchange cycles", "cycles");
  addColumn("contexts", "worker contexts with work", "contexts", "max");
  const layers = Int32Array.from(facts.layer_of);
  addMeasure("layer", "layer", "", { kind: "names", bySuperstep: false, row: () => layers, whole: () => layers,
    shown: layer => facts.layers[layer] || "none" });
  if (columns.busy_change) {
    addMeasure("busy_change", "busy cycles, B − A", "cycles", { kind: "signed",
      row: superstep => columns.busy_change.row(superstep), whole: () => columns.busy_change_all });
    addMeasure("memory_change", "memory in use, B − A", "bytes", { kind: "signed",
      row: superstep => columns.memory_change.row(superstep), whole: () => columns.memory_change_all });
  }
}

/** Cycles of a superstep in which a tile waits for the one that the superstep's compute takes as long as. */
function idle(superstep) {
  const busy = columns.busy.row(superstep), compute = facts.spans[superstep].compute_cycles;
  return Float64Array.from(busy, cycles => Math.max(0, compute - cycles));
}

/** Where a superstep stands among those kept by timestep, -1 for none. */
function windowRow(superstep) {
  return columns.window_supersteps.indexOf(superstep);
}

/** The row of columns.window with a superstep in one timestep. */
function windowPlace(superstep, timestep) {
  return windowRow(superstep) * columns.window_timesteps.length + timestep;
}

/** Busy cycles of all tiles in a superstep of one timestep. */
function windowPart(superstep, timestep) {
  return columns.window.row(windowPlace(superstep, timestep));
}

/** Whether a timestep is selected, and kept for a superstep. */
function inTimestep(superstep) {
  return state.timestep >= 0 && windowRow(superstep) >= 0;
}

/** Busy cycles of all tiles in a superstep: in the selected timestep, else in all together. */
function busyNow(superstep) {
  return inTimestep(superstep) ? windowPart(superstep, state.timestep) : row("busy", superstep);
}

/** What the floor plan shows now: a number for every tile. */
function shownRow() {
  return state.measure === "busy" ? busyNow(state.superstep) : row(state.measure, state.superstep);
}

/** In words, what numbers those are. */
function shownWords() {
  const measure = measures[state.measure];
  if (!measure.bySuperstep) return measure.kind ? "" : "all supersteps together";
  if (state.superstep < 0) {
    const peaks = measure.combine === "max" || state.measure === "memory_change";
    return `all supersteps together${peaks ? ", the most of any" : ""}`;
  }
  const at = superstepWords(state.superstep);
  if (state.measure !== "busy" || !inTimestep(state.superstep)) return at;
  return `${at}, timestep ${columns.window_timesteps[state.timestep]}`;
}
