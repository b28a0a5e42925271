// The time axis: every superstep to scale, on the critical path, on every chip and on some tiles.
// facts.path: superstep (-1: loop control), span, cycles at which it, its exchange and its compute begin and it ends,
// whether no tile begins before all are there, the slowest tile and the timestep's place among those kept (-1: all
// together). facts.path_by_timestep: the same of the timesteps kept, in the order in which they run.
const time = { path: [], cycles: 0, from: 0, to: 0, rows: [], brush: null };
const TIME_LEFT = 74, TIME_TOP = 22, WAITING = 6; // pixels; tiles drawn that the others wait for longest
const MOST_CHIPS = 16, CHOSEN = 4; // rows of chips; tiles that were selected last

function microseconds(cycles, step = 0) {
  const value = (1e6 * cycles) / facts.clock_hz;
  return step ? value.toFixed(Math.max(0, Math.ceil(-Math.log10((1e6 * step) / facts.clock_hz)))) : some.format(value);
}

function drawTimeline() {
  const { rows, from, to } = time, last = rows[rows.length - 1], foot = last.y + last.high + 8;
  const { context, width } = sized(element("walk-time"), foot + 34), colour = ink();
  const wide = width - TIME_LEFT - 8, x = cycle => TIME_LEFT + ((cycle - from) / (to - from)) * wide;
  Object.assign(time, { x, wide });
  const inside = cycle => Math.max(TIME_LEFT, Math.min(TIME_LEFT + wide, x(cycle)));
  context.font = "11px system-ui, sans-serif";
  drawPhases(context, inside);
  for (const { label, y, high, slices, tile } of rows) {
    context.fillStyle = colour.panel;
    context.fillRect(TIME_LEFT, y, wide, high);
    context.fillStyle = tile === state.tile ? colour.ink : colour.soft;
    context.textAlign = "right";
    context.fillText(label, TIME_LEFT - 6, y + high / 2 + 4);
    for (const slice of slices) {
      if (slice.to < from || slice.from > to) continue;
      const left = inside(slice.from), room = inside(slice.to) - left;
      context.fillStyle = PARTS[slice.part];
      context.fillRect(left, y, Math.max(0.5, room), high);
      if (room > 3) {
        context.fillStyle = colour.paper;
        context.fillRect(left + room - 0.5, y, 0.5, high);
      }
      if (tile === undefined && slice.part !== "sync") nameIn(context, sliceName(slice), left, room, y + high / 2 + 4);
    }
  }
  drawPath(context, inside);
  drawTicks(context, foot, wide);
  const at = selectedOnPath();
  if (at && at[5] >= from && at[2] <= to) {
    context.strokeStyle = "#d00000";
    context.lineWidth = 2;
    context.strokeRect(inside(at[2]), TIME_TOP - 3, Math.max(2, inside(at[5]) - inside(at[2])), foot - TIME_TOP);
  }
  if (time.brush) {
    context.strokeStyle = colour.ink;
    const { x: one, to: other } = time.brush;
    context.strokeRect(Math.min(one, other), TIME_TOP, Math.abs(other - one), foot - TIME_TOP);
  }
  const part = to - from < time.cycles ? `, ${microseconds(from)} to ${microseconds(to)} µs of it` : "";
  element("walk-time-title").textContent = `Timeline: ${time.what}, ${microseconds(time.cycles)} µs to scale${part}`;
}

/** The selected superstep on the time axis, in the selected timestep or else the first that is there. */
function selectedOnPath() {
  const some = time.path.filter(([superstep]) => superstep >= 0 && superstep === state.superstep);
  return some.find(one => one[8] === state.timestep) ?? some[0];
}

/** Timesteps one by one or all together: the path, and all that is drawn of it. */
function layOut(byTimestep) {
  const all = columns.window_timesteps;
  time.path = byTimestep ? facts.path_by_timestep : facts.path;
  time.cycles = byTimestep ? time.path[time.path.length - 1][5] : facts.cycles;
  time.what = `one ${facts.run_name}`;
  if (byTimestep) time.what += ` with timesteps ${Math.min(...all)} to ${Math.max(...all)} alone`;
  element("walk-time-words").textContent = byTimestep
    ? "Timesteps in the order in which they run; their exchanges and syncs are means over all timesteps."
    : "Every superstep with all its executions together, one after the other.";
  time.fixed = fixedRows();
  timeRows();
  timeTo(0, time.cycles);
}

/** A text in a bar that has room for it, cut to its width. */
function nameIn(context, name, left, room, y) {
  const letters = Math.floor((room - 6) / 6);
  if (letters < 4) return;
  context.fillStyle = "#000000";
  context.textAlign = "left";
  context.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, left + 3, y);
}

function sliceName({ superstep, span }) {
  return facts.spans[span === undefined ? superstep : span].name;
}

/** A band above the rows with a colour for each phase. */
function drawPhases(context, inside) {
  const all = phases();
  for (const [, span, begin, , , end] of time.path) {
    const { phase } = facts.spans[span];
    context.fillStyle = NAMES[all.indexOf(phase) % NAMES.length];
    context.fillRect(inside(begin), TIME_TOP - 8, inside(end) - inside(begin), 4);
  }
  context.fillStyle = ink().soft;
  context.textAlign = "left";
  const taken = [], lasts = phase => time.path.reduce((total, [, span, begin, , , end]) =>
    (facts.spans[span].phase === phase ? total + inside(end) - inside(begin) : total), 0);
  for (const [phase, pixels] of all.map(one => [one, lasts(one)]).sort((a, b) => b[1] - a[1])) {
    const first = time.path.find(([, span, , , , end]) => facts.spans[span].phase === phase && end > time.from);
    const wide = context.measureText(phase).width;
    const left = first && Math.min(inside(first[2]), TIME_LEFT + time.wide - wide);
    if (!pixels || taken.some(([from, to]) => left < to && left + wide > from)) continue;
    context.fillText(phase, left, TIME_TOP - 11);
    taken.push([left - 8, left + wide + 8]);
  }
}

/** The critical path over the rows of tiles: a line on the tile that decides how long each superstep takes. */
function drawPath(context, inside) {
  const byTile = new Map(time.rows.filter(one => one.tile !== undefined).map(one => [one.tile, one]));
  context.strokeStyle = ink().ink;
  context.lineWidth = 1.5;
  context.beginPath();
  let joined = false;
  for (const [, span, , exchange, compute, end, , slowest] of time.path) {
    const { exchange_tile } = facts.spans[span];
    for (const [tile, begins, ends] of [[exchange_tile, exchange, compute], [slowest, compute, end]]) {
      if (ends <= begins || ends < time.from || begins > time.to) continue;
      const one = byTile.get(tile);
      if (one) {
        const y = one.y + one.high + 1;
        context[joined ? "lineTo" : "moveTo"](inside(begins), y);
        context.lineTo(inside(ends), y);
      }
      joined = Boolean(one);
    }
  }
  context.stroke();
}

function drawTicks(context, y, wide) {
  const per = 1e6 / facts.clock_hz, least = ((time.to - time.from) * per * 75) / wide;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5, 10].find(one => one * power >= least) * power) / per;
  context.fillStyle = ink().soft;
  context.textAlign = "center";
  for (let cycle = Math.ceil(time.from / step) * step; cycle <= time.to; cycle += step) {
    const x = time.x(cycle);
    context.fillRect(x, y, 1, 4);
    if (x < TIME_LEFT + wide - 40) context.fillText(microseconds(cycle, step), x, y + 16);
  }
  context.textAlign = "right";
  context.fillText("µs", TIME_LEFT + wide + 6, y + 16);
}

/** Show cycles from one to another, at least a few of them. */
function timeTo(from, to) {
  const least = 40, middle = (from + to) / 2;
  const [low, high] = to - from < least ? [middle - least / 2, middle + least / 2] : [from, to];
  const wide = Math.min(time.cycles, high - low);
  time.from = Math.max(0, Math.min(time.cycles - wide, low));
  time.to = time.from + wide;
  drawTimeline();
}

function cycleAt(event) {
  const edge = element("walk-time").getBoundingClientRect();
  const share = (event.clientX - edge.left - TIME_LEFT) / time.wide;
  return time.from + Math.max(0, Math.min(0.999999, share)) * (time.to - time.from);
}

function rowAt(event) {
  const y = event.clientY - element("walk-time").getBoundingClientRect().top;
  return time.rows.find(one => y >= one.y - 2 && y < one.y + one.high + 2);
}

/** What is under the pointer: on a tile its own work, else the superstep of the whole run. */
function timeTip(event) {
  const cycle = cycleAt(event), one = rowAt(event) ?? time.rows[0];
  const here = one.slices.find(slice => slice.from <= cycle && cycle < slice.to);
  const at = onPath(cycle), span = at && facts.spans[at[1]];
  const lines = [`${microseconds(cycle)} µs, cycle ${thousands(Math.floor(cycle))}`];
  const number = at && (at[0] < 0 ? "loop control" : `superstep ${at[0]}`);
  const when = at && (at[8] < 0 ? `${thousands(span.times)}×` : `timestep ${columns.window_timesteps[at[8]]}`);
  if (span) lines.push(`${number}, ${span.name} (${span.phase}, ${when})`);
  lines.push(here ? `${one.label}: ${here.part} of ${sliceName(here)}, ${thousands(here.to - here.from)} cycles`
    : `${one.label}: waits`);
  if (span && span.compute_cycles) lines.push(`its compute takes as long as tile ${at[7]}`);
  showTip(event, ...lines);
}

function onPath(cycle) {
  return time.path.find(([, , begin, , , end]) => begin <= cycle && cycle < end);
}

function startTimeline() {
  const canvas = element("walk-time"), x = event => event.clientX - canvas.getBoundingClientRect().left;
  Object.assign(time, { deciding: decidingTiles(), chosen: [] });
  layOut(false);
  element("walk-in-order-choice").hidden = !facts.path_by_timestep.length;
  element("walk-in-order").addEventListener("change", event => layOut(event.target.checked));
  canvas.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    time.brush = { x: x(event), to: x(event), cycle: cycleAt(event) };
  });
  canvas.addEventListener("pointermove", event => {
    timeTip(event);
    if (!time.brush) return;
    time.brush.to = x(event);
    drawTimeline();
  });
  canvas.addEventListener("pointerup", event => {
    const brush = time.brush, cycle = cycleAt(event), one = rowAt(event);
    time.brush = null;
    if (!brush) return;
    if (Math.abs(brush.to - brush.x) >= 5) return timeTo(Math.min(cycle, brush.cycle), Math.max(cycle, brush.cycle));
    const at = onPath(cycle);
    const tile = one && one.tile !== undefined ? { tile: one.tile } : {};
    if (at && at[0] >= 0) select({ superstep: at[0], timestep: at[8], ...tile });
    drawTimeline();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => timeTo(0, time.cycles));
  canvas.addEventListener("wheel", event => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    const factor = event.deltaY > 0 ? 1.25 : 0.8, cycle = cycleAt(event);
    timeTo(cycle - (cycle - time.from) * factor, cycle + (time.to - cycle) * factor);
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const factor = { "+": 0.5, "-": 2 }[event.key];
    if (!factor) return;
    const at = selectedOnPath();
    const middle = at ? (at[2] + at[5]) / 2 : (time.from + time.to) / 2, half = ((time.to - time.from) * factor) / 2;
    timeTo(middle - half, middle + half);
  });
  views.push(changed => {
    if (changed.has("tile")) {
      if (state.tile >= 0 && !time.deciding.includes(state.tile)) {
        time.chosen = [state.tile, ...time.chosen.filter(tile => tile !== state.tile)].slice(0, CHOSEN);
      }
      timeRows();
    }
    if (["tile", "superstep", "timestep"].some(name => changed.has(name))) drawTimeline();
  });
}
