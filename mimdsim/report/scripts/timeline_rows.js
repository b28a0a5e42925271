// What the rows of the time axis show: slices of cycles, of the whole run, of chips and of tiles.

/** Cycles of one execution, or of all together (at < 0), of what is counted over all of them. */
function ofOne(cycles, superstep, at) {
  return at < 0 ? cycles : Math.round(cycles / facts.spans[superstep].times);
}

/** The column and its row that hold the busy cycles of a superstep, in a timestep or all together (at < 0). */
function busyRow(superstep, at) {
  return at < 0 ? [columns.busy, superstep] : [columns.window, windowPlace(superstep, at)];
}

/** Cycles from and to of what a tile, or the busiest of several, does in each superstep, in order. */
function slicesOf(exchangeIn, busyIn) {
  const found = [];
  let free = 0;
  for (const [superstep, , , exchange, compute, , barrier, , timestep] of time.path) {
    if (superstep < 0) continue;
    for (const [part, earliest, cycles] of [["exchange", exchange, ofOne(exchangeIn(superstep), superstep, timestep)],
      ["compute", compute, busyIn(superstep, timestep)]]) {
      if (barrier) free = Math.max(free, earliest);
      if (cycles) found.push({ superstep, part, from: free, to: free + cycles });
      free += cycles;
    }
  }
  return found;
}

/** The tiles that the others wait for longest, that longest first. */
function decidingTiles() {
  const waited = new Float64Array(facts.tiles);
  for (const { slowest_tile, compute_cycles, exchange_tile, exchange_cycles } of facts.spans) {
    if (slowest_tile >= 0) waited[slowest_tile] += compute_cycles;
    if (exchange_tile >= 0) waited[exchange_tile] += exchange_cycles;
  }
  return largest(waited, WAITING);
}

/** The critical path as slices: sync, exchange and compute of every superstep. */
function pathSlices() {
  return time.path.flatMap(([superstep, span, begin, exchange, compute, end]) =>
    [["sync", begin, exchange], ["exchange", exchange, compute], ["compute", compute, end]]
      .filter(([, from, to]) => to > from).map(([part, from, to]) => ({ superstep, span, part, from, to })));
}

/** The rows that do not depend on the selection: the whole run, and every chip. */
function fixedRows() {
  const rows = [{ label: "whole run", high: 26, slices: pathSlices() }];
  const every = measures.exchange && measures.exchange.bySuperstep, per = Math.ceil(facts.tiles / facts.chips);
  const most = (column, at, chip) => maximum(column.row(at).subarray(chip * per, (chip + 1) * per));
  for (let chip = 0; facts.chips > 1 && chip < Math.min(facts.chips, MOST_CHIPS); chip++) {
    rows.push({ label: `chip ${chip}`, high: 14, slices: slicesOf(
      superstep => (every ? most(columns.exchange, superstep, chip) : 0),
      (superstep, at) => most(...busyRow(superstep, at), chip)) });
  }
  return rows;
}

function timeRows() {
  const rows = [...time.fixed], every = measures.exchange && measures.exchange.bySuperstep;
  for (const tile of [...new Set([...time.chosen, ...time.deciding])]) {
    rows.push({ label: `tile ${tile}`, tile, high: 16, slices: slicesOf(
      superstep => (every ? columns.exchange.at(superstep, tile) : 0),
      (superstep, at) => { const [column, row] = busyRow(superstep, at); return column.at(row, tile); }) });
  }
  let y = TIME_TOP;
  for (const one of rows) {
    one.y = y;
    y += one.high + 4;
  }
  time.rows = rows;
}
