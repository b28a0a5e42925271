// Traffic between groups of tiles that lie side by side, for the selected superstep or all of them.
let matrix = null; // {groups, bytes, cell, left}

function groupTiles() {
  const first = [], last = [];
  columns.group_of.forEach((group, tile) => {
    if (first[group] === undefined) first[group] = tile;
    last[group] = tile;
  });
  return { first, last, groups: first.length };
}

function groupWords(group) {
  const { first, last } = matrix.of;
  return `tiles ${first[group]}–${last[group]}`;
}

/** Bytes from group to group, [sending, receiving]. */
function flowsOf(superstep, groups) {
  const found = new Float64Array(groups * groups), flows = columns.traffic;
  for (let at = 0; at < flows.length; at += 4) {
    if (superstep < 0 || flows[at] === superstep) found[flows[at + 1] * groups + flows[at + 2]] += flows[at + 3];
  }
  return found;
}

function drawTraffic() {
  const of = groupTiles(), { groups } = of, values = flowsOf(state.superstep, groups), colour = ink();
  const canvas = element("walk-traffic"), room = canvas.parentElement.clientWidth;
  const left = 12 + 7 * thousands(facts.tiles).length, top = 6, foot = 32; // left: room for the highest number
  const edge = Math.max(120, Math.min(room - left - 8, 460));
  const { context, height } = sized(canvas, edge + top + foot);
  matrix = { of, values, edge, left, top, groups };
  const measure = { unit: "bytes", label: "bytes from group to group", shown: bytes, name: "traffic" };
  const colours = colouring(measure, values), empty = packedColour(parsedColour(colour.panel));
  const dots = Uint32Array.from(values, value => (value ? colours.packed[colours.index(value)] : empty));
  stretched(context, dots, groups, groups, { x: left, y: top, width: edge, height: edge });
  context.fillStyle = colour.soft;
  context.textAlign = "right";
  for (const at of [0, 0.25, 0.5, 0.75]) {
    const group = Math.floor(at * groups);
    context.fillText(thousands(of.first[group]), left - 5, top + (group / groups) * edge + 11);
  }
  context.textAlign = "left";
  for (const at of [0, 0.25, 0.5, 0.75]) {
    const group = Math.floor(at * groups);
    context.fillText(thousands(of.first[group]), left + (group / groups) * edge, top + edge + 13);
  }
  context.fillText("receiving tiles across, sending tiles down", left, height - 4);
  element("walk-traffic-title").textContent = `Traffic between groups of tiles, ${superstepWords(state.superstep)}`;
  showScale(element("walk-traffic-scale"), measure, colours);
  drawFlows(values, groups);
}

function parsedColour(text) {
  return /^#[0-9a-f]{6}$/i.test(text) ? hexParts(text) : [238, 238, 238];
}

/** The largest flows, the tiles that receive most, and what goes from chip to chip. */
function drawFlows(values, groups) {
  const all = sum(values), flows = largest(values, TOP).map(at =>
    [groupWords(Math.floor(at / groups)), groupWords(at % groups), size(values[at]), percent(values[at], all)]);
  const received = row("received", state.superstep), total = sum(received), every = !measures.received.bySuperstep;
  const hot = largest(received, 10).map(tile => [tileLink(tile), facts.layers[facts.layer_of[tile]] || "–",
    size(received[tile]), percent(received[tile], total)]);
  const tables = [tableOf("walk-flows", "Largest flows", ["from", "to", "bytes", "share"], flows),
    tableOf("walk-receivers", `Tiles that receive most${every ? ", all supersteps together" : ""}`,
      ["tile", "layer", "bytes", "share"], hot)];
  if (facts.chips > 1) tables.push(linkTable());
  element("walk-flow-tables").replaceChildren(...(all || total ? tables
    : [make("p", { className: "note" }, "Nothing is moved in this superstep.")]));
}

function linkTable() {
  const found = columns.links, rows = largest(found, 20).map(at =>
    [`chip ${Math.floor(at / facts.chips)}`, `chip ${at % facts.chips}`, size(found[at])]);
  return tableOf("walk-links", "From chip to chip, all supersteps together", ["from", "to", "bytes"], rows,
    "Bytes over links are not part of the matrix.");
}

function startTraffic() {
  const canvas = element("walk-traffic");
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), { edge, left, top, groups, values } = matrix;
    const to = Math.floor(((event.clientX - box.left - left) / edge) * groups);
    const from = Math.floor(((event.clientY - box.top - top) / edge) * groups);
    if (to < 0 || from < 0 || to >= groups || from >= groups) return hideTip();
    showTip(event, `${groupWords(from)} to ${groupWords(to)}`, bytes(values[from * groups + to]));
  });
  canvas.addEventListener("pointerleave", hideTip);
  views.push(changed => {
    if (changed.has("superstep")) drawTraffic();
  });
}
