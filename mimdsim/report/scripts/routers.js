// The plan of routers, with the links between them coloured by how long each is in use.
const RED = [[253, 225, 140], [254, 178, 76], [252, 98, 42], [200, 10, 38]];
const ON_LIGHT = scaleOf([...RED, [90, 0, 38]]), ON_DARK = scaleOf([[130, 30, 80], ...[...RED].reverse()]);
const DRAWN_CELL = 8; // dots of the screen between routers, below which the directions of a link cannot be told apart
const ARROW_CELL = 24; // pixels between routers, below which half arrows are bars without heads
const ABREAST = 24; // routers in a row, above which the plan is as wide as the page
const MOST_RATIO = 100; // of the fullest link to those with the lowest colour
const routers = { cell: 0, pieces: [], leaves: false, named: -1, fullest: -1, size: null, cycles: null };

function drawsWays(cell) {
  return cell * (window.devicePixelRatio || 1) >= DRAWN_CELL;
}

/** Pieces of a link from router to router: [x, y] where they begin, way, length. Round a ring, or to the middle of a
 * crossbar, it leaves the plan, and comes back on the other side. */
function piecesOf(place, plan, cell) {
  const { way, chip, row, column } = linkParts(place, plan), [across, down] = WAYS[way];
  const edge = (cell < ARROW_CELL ? 0.14 : 0.2) * cell;
  const x = ((chip % plan.side) * (plan.across + CHIP_GAP) + column + 0.5) * cell;
  const y = (Math.floor(chip / plan.side) * (plan.rows + CHIP_GAP) + row + 0.5) * cell;
  if (!drawsWays(cell)) return [{ place, way, x, y, long: cell }];
  const leaves = plan.crossbar || [[column + across, plan.across], [row + down, plan.rows]]
    .some(([to, count]) => to < 0 || to >= count);
  routers.leaves ||= leaves && !plan.crossbar;
  const long = leaves ? 0.5 * cell - edge : cell - 2 * edge;
  const found = [{ place, way, x: x + across * edge, y: y + down * edge, long }];
  if (leaves && !plan.crossbar) {
    const [back, up] = [across * (plan.across - 0.5) * cell, down * (plan.rows - 0.5) * cell];
    found.push({ place, way, x: x - back, y: y - up, long });
  }
  return found;
}

/** The outline of a piece: a half arrow, or a bar, on the right-hand side of the line between the routers. */
function outline(context, { way, x, y, long }, cell) {
  context.beginPath();
  if (!drawsWays(cell)) return context.rect(x - cell / 2, y - cell / 2, cell, cell);
  const bar = cell < ARROW_CELL, wide = (bar ? 0.24 : 0.14) * cell, gap = 0.025 * cell;
  const [dx, dy] = WAYS[way], head = bar ? 0 : Math.min(long, 0.26 * cell);
  const points = [[0, gap], [long, gap], [long - head, gap + (bar ? 1 : 1.9) * wide], [long - head, gap + wide],
    [0, gap + wide]];
  for (const [along, out] of points) context.lineTo(x + along * dx - out * dy, y + along * dy + out * dx);
  context.closePath();
}

function drawRouters() {
  const plan = routerPlan(), canvas = element("walk-routers"), colour = ink(), { cycles } = routers;
  canvas.closest(".walk-two").style.gridTemplateColumns = plan.columns > ABREAST ? "minmax(0, 1fr)" : "";
  const cell = Math.min(64, canvas.parentElement.clientWidth / plan.columns);
  const { context } = sized(canvas, Math.ceil(cell * plan.lines));
  const loaded = cycles.filter(value => value > 0), most = maximum(loaded);
  const lowest = loaded.reduce((low, value) => Math.min(low, value), most), least = Math.max(lowest, most / MOST_RATIO);
  const high = most > least ? Math.log(most / least) : 1;
  const scale = parsedColour(colour.paper)[0] < 128 ? ON_DARK : ON_LIGHT;
  const index = value => Math.round((255 * Math.max(0, Math.log(value / least))) / high);
  const order = Array.from(cycles, (_, place) => place).sort((a, b) => cycles[a] - cycles[b]); // the fullest on top
  Object.assign(routers, { cell, leaves: false });
  routers.pieces = order.flatMap(place => piecesOf(place, plan, cell));
  drawSquares(context, plan, cell, colour);
  for (const piece of routers.pieces) {
    outline(context, piece, cell);
    context.fillStyle = cycles[piece.place] ? scale.css[most > least ? index(cycles[piece.place]) : 255] : colour.line;
    context.fill();
  }
  markLink(context, routers.fullest, colour.ink, colour.paper);
  if (routers.named !== routers.fullest) markLink(context, routers.named, "#0072B2", colour.paper);
  const measure = { label: "cycles in use, on a logarithmic scale", unit: "cycles",
    shown: value => (value || lowest === least ? "" : "≤ ") + thousands(Math.round(least * Math.exp(value))) };
  const holder = element("walk-routers-scale");
  holder.replaceChildren();
  if (loaded.length) showScale(holder, measure, { level: at => (most > least ? at * high : 0), css: scale.css });
  const patch = make("i", { className: "walk-patch" });
  patch.style.background = colour.line;
  holder.append(make("span", { className: "walk-key" }, patch, "a link that carries nothing here"));
  element("walk-routers-title").textContent = `Links between routers: cycles in use, ${
    columns.link_cycles.count > 1 ? superstepWords(state.superstep) : "all supersteps together"}`;
}

/** The routers: squares, filled where tiles are; red around the selected tile's. */
function drawSquares(context, plan, cell, colour) {
  if (!drawsWays(cell)) return;
  const tiled = new Set(columns.router_of), edge = (cell < ARROW_CELL ? 0.28 : 0.36) * cell;
  const chosen = state.tile < 0 ? -1 : columns.router_of[state.tile % columns.router_of.length];
  context.strokeStyle = colour.line;
  context.fillStyle = colour.soft;
  for (let chip = 0; chip < facts.chips; chip++) {
    for (let router = 0; router < plan.rows * plan.across; router++) {
      const column = (chip % plan.side) * (plan.across + CHIP_GAP) + (router % plan.across);
      const line = Math.floor(chip / plan.side) * (plan.rows + CHIP_GAP) + Math.floor(router / plan.across);
      const box = [(column + 0.5) * cell - edge / 2, (line + 0.5) * cell - edge / 2, edge, edge];
      if (tiled.has(router)) context.fillRect(...box);
      else context.strokeRect(...box);
      if (router === chosen && chip === Math.floor(state.tile / columns.router_of.length)) {
        context.fillStyle = "#d00000";
        context.fillRect(...box);
        context.fillStyle = colour.soft;
      }
    }
  }
}

/** A ring around the middle of a link, and its outline. */
function markLink(context, place, colour, paper) {
  const { cell } = routers, piece = routers.pieces.find(one => one.place === place);
  if (!piece) return;
  const [dx, dy] = !drawsWays(cell) ? [0, 0] : WAYS[piece.way];
  for (const [line, wide] of [[paper, 5], [colour, 2]]) {
    context.strokeStyle = line;
    context.lineWidth = wide;
    context.beginPath();
    context.arc(piece.x + (dx * piece.long) / 2, piece.y + (dy * piece.long) / 2, Math.max(8, 0.45 * cell), 0, 7);
    context.stroke();
  }
  context.lineWidth = 1;
}

/** The link under the pointer, the fullest of several; -1 for none. */
function linkAt(event) {
  const { cell, pieces } = routers, box = element("walk-routers").getBoundingClientRect();
  const within = ({ way, x, y, long }) => {
    const [right, down] = [event.clientX - box.left - x, event.clientY - box.top - y], [dx, dy] = WAYS[way];
    if (!drawsWays(cell)) return Math.max(Math.abs(right), Math.abs(down)) <= cell / 2;
    const along = right * dx + down * dy, out = down * dx - right * dy;
    return along >= 0 && along <= long && out >= 0 && out <= 0.35 * cell;
  };
  return pieces.findLast(within)?.place ?? -1;
}

/** Mark a link and say what it is; -1: the fullest. */
function nameLink(place) {
  if (place === routers.named) return;
  routers.named = place;
  drawRouters();
  tellLink();
}

function tellLink() {
  const { named, fullest } = routers, shown = named < 0 ? fullest : named;
  element("walk-routers-words").replaceChildren(...(shown < 0 ? ["No link carries anything in this superstep."]
    : [make("b", {}, shown === fullest ? "Fullest link" : "Link"), `: ${linkWords(shown)[1]}, ${loadWords(shown)}.`]));
}

function showLinks() {
  routers.size = ofLinks("link_bytes", state.superstep);
  routers.cycles = ofLinks("link_cycles", state.superstep);
  const order = largest(routers.cycles, TOP);
  routers.fullest = order.length ? order[0] : -1;
  routers.named = -1;
  drawRouters();
  tellLink();
  const rows = order.map(place => {
    const button = make("button", { type: "button", className: "walk-link" }, linkWords(place)[0]);
    for (const event of ["focus", "click", "pointerenter"]) button.addEventListener(event, () => nameLink(place));
    return [button, size(routers.size[place]), count(routers.cycles[place]),
      percent(routers.cycles[place], routers.cycles[routers.fullest])];
  });
  const used = routers.cycles.filter(value => value > 0).length;
  const half = routers.cycles.filter(value => value > 0 && value >= routers.cycles[routers.fullest] / 2).length;
  element("walk-routers-table").replaceChildren(...(order.length ? [tableOf("walk-fullest-links", "Fullest links",
    ["link", "bytes", "cycles in use", "of the fullest"], rows,
    `${thousands(half)} of ${counted(used, "link")} that carry anything are in use for half as long or more.`)] : []));
}

/** How the plan is to be read. */
function routerHelp() {
  const { rows, across, crossbar } = routerPlan();
  if (!drawsWays(routers.cell)) return "Every dot is a router, in the colour of the fullest link that leaves it.";
  const hollow = new Set(columns.router_of).size < rows * across ? ", hollow ones without a tile" : "";
  const edge = routers.leaves ? "; those that end at the edge go round to the other side" : "";
  const ways = crossbar ? "Right of each is its link to the middle, below it the one from the middle"
    : `Each direction of a link is drawn on its right-hand side${edge}`;
  return `Squares are routers${hollow}. ${ways}. A ring marks the fullest; pointing at a link, or at one of the ` +
    "table, names it.";
}

{
  const canvas = element("walk-routers");
  for (const kind of ["pointermove", "click"]) {
    canvas.addEventListener(kind, event => {
      const place = linkAt(event);
      nameLink(place);
      if (place < 0) return hideTip();
      showTip(event, linkWords(place)[1], loadWords(place));
    });
  }
  canvas.addEventListener("pointerleave", event => {
    hideTip();
    if (event.pointerType === "mouse") nameLink(-1);
  });
  views.push(changed => {
    if (changed.has("superstep")) showLinks();
    else if (changed.has("tile")) drawRouters();
    element("walk-routers-help").textContent = routerHelp();
  });
}
