// The floor plan: tiles where they lie on the grid of their chip, chips side by side.
const floor = { cell: 0, places: null };
const CHIP_GAP = 1; // columns of nothing between chips

/** Columns and rows of a chip, and how many chips stand side by side: the plan is about twice as wide as high. */
function layout() {
  const perChip = Math.ceil(facts.tiles / facts.chips);
  const across = Math.min(facts.grid_columns, perChip), down = Math.ceil(perChip / across);
  let side = 1;
  const wide = chips => chips * (across + CHIP_GAP) > 2.2 * Math.ceil(facts.chips / chips) * (down + 1);
  while (side < facts.chips && !wide(side + 1)) side++;
  const ranks = Math.ceil(facts.chips / side);
  return { perChip, across, down, side, columns: side * (across + CHIP_GAP) - CHIP_GAP, rows: ranks * (down + 1) - 1 };
}

/** Column and row of a tile on the whole plan. */
function placeOf(tile, plan) {
  const chip = Math.floor(tile / plan.perChip), within = tile % plan.perChip;
  return [(chip % plan.side) * (plan.across + CHIP_GAP) + (within % plan.across),
    Math.floor(chip / plan.side) * (plan.down + 1) + Math.floor(within / plan.across)];
}

function drawFloor() {
  const plan = layout(), measure = measures[state.measure], values = shownRow();
  const canvas = element("walk-floor");
  const cell = Math.max(0.5, canvas.parentElement.clientWidth / plan.columns);
  const { context } = sized(canvas, Math.ceil(cell * plan.rows));
  const colours = colouring(measure, values);
  const dots = new Uint32Array(plan.columns * plan.rows);
  for (let tile = 0; tile < facts.tiles; tile++) {
    const [column, line] = placeOf(tile, plan);
    dots[line * plan.columns + column] = colours.packed[colours.index(values[tile])];
  }
  const box = { x: 0, y: 0, width: cell * plan.columns, height: cell * plan.rows };
  stretched(context, dots, plan.columns, plan.rows, box);
  if (cell >= 6) drawJoints(context, plan, cell);
  floor.cell = cell;
  floor.plan = plan;
  if (state.tile >= 0) {
    const [column, line] = placeOf(state.tile, plan), grown = 1 + Math.max(0, 5 - cell), edge = cell + 2 * grown;
    for (const [colour, wide] of [["#ffffff", 4], ["#d00000", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.strokeRect(column * cell - grown, line * cell - grown, edge, edge);
    }
  }
  showScale(element("walk-floor-scale"), measure, colours);
  const words = shownWords();
  element("walk-floor-title").textContent = `Floor plan: ${measure.label}${words ? `, ${words}` : ""}`;
}

/** Thin lines between tiles that are large enough to be told apart. */
function drawJoints(context, plan, cell) {
  context.strokeStyle = ink().paper;
  context.lineWidth = 1;
  context.beginPath();
  for (let column = 1; column < plan.columns; column++) {
    context.moveTo(column * cell, 0);
    context.lineTo(column * cell, plan.rows * cell);
  }
  for (let line = 1; line < plan.rows; line++) {
    context.moveTo(0, line * cell);
    context.lineTo(plan.columns * cell, line * cell);
  }
  context.stroke();
}

/** The tile under the pointer, -1 for none. */
function tileAt(event) {
  const { plan, cell } = floor, box = element("walk-floor").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / cell), line = Math.floor((event.clientY - box.top) / cell);
  const [side, x] = [Math.floor(column / (plan.across + CHIP_GAP)), column % (plan.across + CHIP_GAP)];
  const [rank, y] = [Math.floor(line / (plan.down + 1)), line % (plan.down + 1)];
  const within = y * plan.across + x, tile = (rank * plan.side + side) * plan.perChip + within;
  const there = column >= 0 && line >= 0 && side < plan.side && x < plan.across && within < plan.perChip;
  return there && tile < facts.tiles ? tile : -1;
}

function startFloor() {
  const canvas = element("walk-floor");
  canvas.addEventListener("pointermove", event => {
    const tile = tileAt(event);
    if (tile < 0) return hideTip();
    const measure = measures[state.measure];
    const lines = [tileWords(tile), `${measure.label}: ${told(measure, shownRow()[tile])}`];
    if (state.measure !== "busy") lines.push(`busy: ${thousands(row("busy", state.superstep)[tile])} cycles`);
    showTip(event, ...lines);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", event => select({ tile: tileAt(event) }));
  views.push(changed => {
    if (["tile", "superstep", "timestep", "measure", "log"].some(name => changed.has(name))) drawFloor();
  });
}

/** A number of a measure with its unit. */
function told(measure, value) {
  return measure.shown(value) + (measure.unit && measure.unit !== "bytes" ? ` ${measure.unit}` : "");
}

/** "tile 12, layer hidden0, chip 1". */
function tileWords(tile) {
  const layer = facts.layers[facts.layer_of[tile]];
  const chip = facts.chips > 1 ? `, chip ${Math.floor(tile / layout().perChip)}` : "";
  return `tile ${tile}${layer ? `, layer ${layer}` : ", no layer"}${chip}`;
}
