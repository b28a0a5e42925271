// What the rows of the time axis show: slices of cycles, of the whole run, of chips and of tiles.

/** Every superstep with all its executions together; more than facts.path: the slowest tile, and no timestep (-1). */
function pathTogether() {
  return facts.path.map(one => [...one, facts.spans[one[1]].slowest_tile, -1]);
}

/** The timesteps kept one by one (the last column: their places), in the order in which they run; what runs once stands
 * between them. */
function pathByTimestep() {
  const found = [];
  let now = 0;
  for (const together of untilBarriers(executions())) {
    const slowest = slowestOf(together);
    for (const [[superstep, number, , , , , barrier], at] of together) {
      const span = facts.spans[number], times = at < 0 ? 1 : span.times;
      const exchange = now + Math.round(span.sync_cycles / times);
      const compute = exchange + Math.round(span.exchange_cycles / times);
      const counted = at >= 0 && superstep >= 0;
      const end = compute + (counted ? windowPart(superstep, at)[slowest] : Math.round(span.compute_cycles / times));
      found.push([superstep, number, now, exchange, compute, end, barrier, counted ? slowest : span.slowest_tile, at]);
      now = end;
    }
  }
  return found;
}

/** [entry of facts.path, timestep's place or -1] as they run: loops, with their control, timestep by timestep. */
function executions() {
  const found = [], kept = columns.window_timesteps, phase = one => facts.spans[one[1]].phase, unrolled = new Set();
  const forward = Array.from(kept.keys()).sort((a, b) => kept[a] - kept[b]), backward = [...forward].reverse();
  let loop = [];
  const unroll = () => {
    if (!loop.length) return;
    const of = phase(loop[0]), control = facts.path.filter(one => one[0] < 0 && phase(one) === of && !unrolled.has(of));
    for (const at of of === "backward" ? backward : forward) found.push(...[...loop, ...control].map(one => [one, at]));
    unrolled.add(of);
    loop = [];
  };
  for (const one of facts.path) {
    if (one[0] < 0 && (loop.length || unrolled.has(phase(one)))) continue;
    const inside = windowRow(one[0]) >= 0;
    if (!inside || (loop.length && phase(loop[0]) !== phase(one))) unroll();
    if (inside) loop.push(one);
    else found.push([one, -1]);
  }
  unroll();
  return found;
}

/** Executions in groups; no tile begins one before all are done with that before. */
function untilBarriers(all) {
  const groups = [];
  for (const one of all) {
    if (one[0][6] || !groups.length) groups.push([]);
    groups[groups.length - 1].push(one);
  }
  return groups;
}

/** The tile with most to do in a group of executions. */
function slowestOf(together) {
  const busy = new Float64Array(facts.tiles);
  for (const [[superstep], at] of together) {
    if (at >= 0 && superstep >= 0) windowPart(superstep, at).forEach((cycles, tile) => { busy[tile] += cycles; });
  }
  return busy.indexOf(maximum(busy));
}

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
