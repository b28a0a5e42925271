// Tile x superstep: supersteps across in program order, tiles down. A dot shows the largest of what it covers.
const picture = { shown: [], first: 0, last: 0, top: 0, bottom: 0, box: null, brush: null };
const FOOT = 132; // room for the supersteps' names
const LEFT = 46;

/** Supersteps that pass the filters, and the whole of them in view. */
function refilter() {
  const wanted = state.text.toLowerCase();
  picture.shown = facts.supersteps.map((_, at) => at).filter(at =>
    (!state.phase || facts.spans[at].phase === state.phase) && facts.supersteps[at].toLowerCase().includes(wanted));
  Object.assign(picture, { first: 0, last: picture.shown.length, top: 0, bottom: facts.tiles });
}

function drawPicture() {
  const canvas = element("walk-picture"), measure = measures[state.measure].bySuperstep ? measures[state.measure]
    : measures.busy;
  const { context, width, height } = sized(canvas, 460);
  const colour = ink(), { shown, first, last, top, bottom } = picture;
  element("walk-picture-title").textContent = `Tiles and supersteps: ${measure.label}, ${thousands(last - first)} of ` +
    `${counted(facts.steps, "superstep")} across, tiles ${thousands(top)} to ${thousands(bottom - 1)} down`;
  element("walk-picture-none").hidden = shown.length > 0;
  if (!shown.length) return;
  const box = { x: LEFT, y: 8, width: width - LEFT - 4, height: height - FOOT - 8 };
  picture.box = box;
  const dots = window.devicePixelRatio || 1;
  const across = last - first, down = bottom - top;
  const columnCount = Math.min(across, Math.round(box.width * dots));
  const rowCount = Math.min(down, Math.round(box.height * dots));
  const cells = new Float64Array(columnCount * rowCount);
  const begins = Int32Array.from({ length: down }, (_, at) => Math.floor((at * rowCount) / down) * columnCount);
  for (let at = 0; at < across; at++) {
    const now = shown[first + at], [from, values] = measure.name === "busy" && inTimestep(now) ? [0, busyNow(now)]
      : measure.some ? measure.some(now) : [0, row(measure.name, now)];
    const column = Math.floor((at * columnCount) / across), end = Math.min(bottom, from + values.length);
    for (let tile = Math.max(top, from); tile < end; tile++) {
      const place = begins[tile - top] + column, value = values[tile - from];
      if (Math.abs(value) > Math.abs(cells[place])) cells[place] = value;
    }
  }
  const told = state.own ? byColumn(cells, columnCount) : measure;
  const colours = colouring(told, cells);
  const coloured = Uint32Array.from(cells, value => colours.packed[colours.index(value)]);
  stretched(context, coloured, columnCount, rowCount, box);
  drawNames(context, box, box.width / across, colour);
  drawCrosshair(context, box);
  if (picture.brush) {
    const { x, y, toX, toY } = picture.brush;
    context.strokeStyle = colour.ink;
    context.setLineDash([4, 3]);
    context.strokeRect(Math.min(x, toX), Math.min(y, toY), Math.abs(toX - x), Math.abs(toY - y));
    context.setLineDash([]);
  }
  showScale(element("walk-picture-scale"), told, colours);
}

/** Divide every column by its largest number, so that supersteps that take little time can be told apart too. */
function byColumn(cells, columnCount) {
  for (let column = 0; column < columnCount; column++) {
    let most = 0;
    for (let at = column; at < cells.length; at += columnCount) most = Math.max(most, Math.abs(cells[at]));
    for (let at = column; most && at < cells.length; at += columnCount) cells[at] /= most;
  }
  const { label, kind } = measures[state.measure].bySuperstep ? measures[state.measure] : measures.busy;
  return { name: "own", kind, unit: "", label: `${label}: share of the largest in the superstep`,
    shown: value => share(value, 1) };
}

/** Names of supersteps where there is room, phases as a line below the picture, numbers of tiles. */
function drawNames(context, box, wide, colour) {
  const { shown, first, last, top, bottom } = picture;
  context.fillStyle = colour.soft;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  for (let at = 0; at <= 4; at++) {
    const tile = Math.round(top + ((bottom - 1 - top) * at) / 4);
    context.fillText(thousands(tile), box.x - 5, box.y + (box.height * (tile - top + 0.5)) / (bottom - top) + 4);
  }
  const each = Math.max(1, Math.ceil(12 / wide));
  for (let at = first; at < last; at++) {
    const x = box.x + (at - first + 0.5) * wide;
    const chosen = shown[at] === state.superstep;
    if ((at - first) % each && !chosen) continue;
    context.save();
    context.translate(x + 4, box.y + box.height + 12);
    context.rotate(-Math.PI / 3);
    context.fillStyle = chosen ? colour.ink : colour.soft;
    if (chosen) context.font = "bold 11px system-ui, sans-serif";
    const name = facts.supersteps[shown[at]];
    context.fillText(name.length > 22 ? `${name.slice(0, 21)}…` : name, 0, 4);
    context.restore();
  }
  context.lineWidth = 3;
  for (let at = first; at < last; at++) {
    const phase = facts.spans[shown[at]].phase;
    context.strokeStyle = NAMES[phases().indexOf(phase) % NAMES.length];
    context.beginPath();
    context.moveTo(box.x + (at - first) * wide, box.y + box.height + 3);
    context.lineTo(box.x + (at - first + 1) * wide, box.y + box.height + 3);
    context.stroke();
  }
  context.lineWidth = 1;
}

function phases() {
  return [...new Set(facts.spans.map(span => span.phase))];
}

function drawCrosshair(context, box) {
  const { shown, first, last, top, bottom } = picture, at = shown.indexOf(state.superstep);
  const wide = box.width / (last - first), high = box.height / (bottom - top);
  for (const [colour, line] of [["#ffffff", 3], ["#d00000", 1.5]]) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    if (at >= first && at < last) context.strokeRect(box.x + (at - first) * wide, box.y, wide, box.height);
    if (state.tile >= top && state.tile < bottom) {
      const y = box.y + (state.tile - top) * high, tall = Math.max(high, 1);
      if (high >= 3) context.strokeRect(box.x, y, box.width, tall);
      else {
        context.beginPath();
        context.moveTo(box.x, y + tall / 2);
        context.lineTo(box.x + box.width, y + tall / 2);
        context.stroke();
      }
    }
  }
  context.lineWidth = 1;
}

/** [place among the shown supersteps, tile] under a point, as fractions; held inside the picture. */
function pictureAt(event) {
  const { box, first, last, top, bottom } = picture, edge = element("walk-picture").getBoundingClientRect();
  const x = Math.max(0, Math.min(0.999999, (event.clientX - edge.left - box.x) / box.width));
  const y = Math.max(0, Math.min(0.999999, (event.clientY - edge.top - box.y) / box.height));
  return [first + x * (last - first), top + y * (bottom - top)];
}

/** Show supersteps first to last and tiles top to bottom, at least one of each. */
function zoomTo(first, last, top, bottom) {
  const from = Math.max(0, Math.floor(first)), above = Math.max(0, Math.floor(top));
  Object.assign(picture, { first: from, last: Math.max(from + 1, Math.min(picture.shown.length, Math.ceil(last))),
    top: above, bottom: Math.max(above + 1, Math.min(facts.tiles, Math.ceil(bottom))) });
  drawPicture();
}

function startPicture() {
  const canvas = element("walk-picture");
  const place = event => {
    const edge = canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  };
  canvas.addEventListener("pointerdown", event => {
    if (!picture.shown.length || event.button !== 0) return;
    const [x, y] = place(event);
    canvas.setPointerCapture(event.pointerId);
    picture.brush = { x, y, toX: x, toY: y, from: pictureAt(event) };
  });
  canvas.addEventListener("pointermove", event => {
    if (!picture.shown.length) return;
    const [at, tile] = pictureAt(event).map(Math.floor), superstep = picture.shown[at];
    const measure = measures[state.measure].bySuperstep ? measures[state.measure] : measures.busy;
    showTip(event, tileWords(tile), `${superstepWords(superstep)} (${facts.spans[superstep].phase})`,
      `${measure.label}: ${told(measure, row(measure.name, superstep)[tile])}`);
    if (picture.brush) {
      [picture.brush.toX, picture.brush.toY] = place(event);
      drawPicture();
    }
  });
  canvas.addEventListener("pointerup", event => {
    const brush = picture.brush;
    picture.brush = null;
    if (!brush) return;
    const [at, tile] = pictureAt(event), [fromAt, fromTile] = brush.from;
    if (Math.abs(brush.toX - brush.x) < 5 && Math.abs(brush.toY - brush.y) < 5) {
      select({ tile: Math.floor(tile), superstep: picture.shown[Math.floor(at)], timestep: -1 });
      drawPicture();
    } else zoomTo(Math.min(at, fromAt), Math.max(at, fromAt), Math.min(tile, fromTile), Math.max(tile, fromTile));
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => zoomTo(0, picture.shown.length, 0, facts.tiles));
  canvas.addEventListener("wheel", event => {
    // the page scrolls on until the picture was clicked or reached with Tab
    if (document.activeElement !== canvas && !event.ctrlKey || !picture.shown.length) return;
    event.preventDefault();
    const factor = event.deltaY > 0 ? 1.25 : 0.8, [at, tile] = pictureAt(event), { first, last, top, bottom } = picture;
    zoomTo(at - (at - first) * factor, at + (last - at) * factor, tile - (tile - top) * factor,
      tile + (bottom - tile) * factor);
  }, { passive: false });
  views.push(changed => {
    if (changed.has("phase") || changed.has("text")) refilter();
    const by = ["tile", "superstep", "timestep", "measure", "log", "phase", "text", "own"];
    if (by.some(name => changed.has(name))) drawPicture();
  });
  refilter();
}
