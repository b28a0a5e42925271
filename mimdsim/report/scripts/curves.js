// Line charts, drawn by uPlot.
const charts = new Map();
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
const BINARY = Array.from({ length: 40 }, (_, at) => 2 ** at);

/** Draw a chart anew in its holder. series: [{label, values, colour, fill, dash, joined}], joined:
 * across places without a value, with points; x: numbers; marks: places of x. */
function curve(id, x, series, { height = 210, xLabel, shown = thousands, marks = [], onClick = null, stepped = false,
  sayX = value => `${value}` }) {
  const holder = element(id), colour = ink();
  if (stepped) { // the last step is as wide as the others
    x = [...x, x.length];
    series = series.map(one => ({ ...one, values: [...one.values, one.values[one.values.length - 1]] }));
  }
  if (charts.has(id)) charts.get(id).destroy();
  holder.replaceChildren();
  const axis = { stroke: colour.soft, grid: { stroke: colour.line, width: 1 }, ticks: { stroke: colour.line },
    font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
  const chart = new uPlot({
    width: Math.max(200, holder.clientWidth), height, padding: [10, 12, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low), high * 1.04 || 1] } },
    axes: [{ ...axis, label: xLabel, labelSize: 22, size: 34, incrs: WHOLE },
      { ...axis, size: 76, incrs: shown === bytes ? BINARY : undefined, values: (_, ticks) => ticks.map(shown) }],
    series: [{ label: xLabel, value: (_, at) => (at === null ? "–" : sayX(at)) }, ...series.map(one => ({
      label: one.label, stroke: one.colour, width: one.fill ? 1 : 1.6, fill: one.fill, dash: one.dash,
      spanGaps: one.joined, points: { show: Boolean(one.joined), size: 5 },
      paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      value: (_, value, __, at) => said(one.own || one.values, at, shown),
    }))],
    hooks: { draw: [made => marks.forEach(at => mark(made, at))] },
  }, [x, ...series.map(one => one.values)], holder);
  if (onClick) chart.over.addEventListener("click", event => {
      const at = Math.floor(chart.posToVal(event.offsetX, "x"));
      if (at >= 0 && at < x.length - 1) onClick(at);
    });
  charts.set(id, chart);
}

/** What the legend says of a series at a place of x. */
function said(values, at, shown) {
  return at === null || at === undefined ? "–" : shown(values[Math.min(at, values.length - 1)]);
}

/** A dashed line down at a place of x. */
function mark(chart, { at, colour = "#d00000" }) {
  const { ctx, bbox } = chart, x = chart.valToPos(at, "x", true);
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * (window.devicePixelRatio || 1);
  ctx.setLineDash([5, 4]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function upTo(count) {
  return Array.from({ length: count }, (_, at) => at);
}

function sayStep(at) {
  return at < facts.steps ? `${at} ${facts.supersteps[at]}` : "–";
}

/** Busy cycles by timestep of the selected superstep: the selected tile, or the busiest and the mean. */
function drawTimesteps() {
  const at = windowRow(state.superstep), figure = element("walk-timesteps-figure");
  figure.hidden = at < 0;
  if (at < 0) return;
  const x = Array.from(columns.window_timesteps), parts = x.map((_, timestep) => windowPart(state.superstep, timestep));
  const series = [{ label: "busiest tile", colour: NAMES[5], values: parts.map(maximum) },
    { label: "mean of all tiles", colour: NAMES[0], values: parts.map(part => sum(part) / facts.tiles) }];
  if (state.tile >= 0) {
    series.push({ label: `tile ${state.tile}`, colour: NAMES[2], values: parts.map(part => part[state.tile]) });
  }
  element("walk-timesteps-title").textContent = `Busy cycles by timestep, ${facts.supersteps[state.superstep]}`;
  curve("walk-timesteps", x, series, { xLabel: "timestep",
    marks: state.timestep >= 0 ? [{ at: x[state.timestep] }] : [] });
}

function startCurves() {
  views.push(changed => {
    if (["tile", "superstep", "timestep"].some(name => changed.has(name))) drawTimesteps();
    if (changed.has("lying") && changed.size > 3) drawRun();
  });
}
