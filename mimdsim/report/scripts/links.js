// Links between routers: what each carries, and what it is called.
const WAYS = [[1, 0, "east"], [-1, 0, "west"], [0, 1, "south"], [0, -1, "north"]];

/** Bytes over every link, or cycles in use, of a superstep or all together. */
function ofLinks(name, superstep) {
  const column = columns[name], found = new Float64Array(columns.link_number.length);
  for (let at = 0; at < column.count; at++) {
    if (superstep >= 0 && column.count > 1 && at !== superstep) continue;
    column.some(at).forEach((value, place) => { found[column.first[at] + place] += value; });
  }
  return found;
}

/** Where routers are drawn: chips side by side, about twice as wide as high. */
function routerPlan() {
  const [rows, across, crossbar] = columns.router_grid;
  let side = 1;
  while (side < facts.chips && (side + 1) * across <= 2.2 * Math.ceil(facts.chips / (side + 1)) * rows) side++;
  const ranks = Math.ceil(facts.chips / side);
  return { rows, across, crossbar, side, columns: side * (across + CHIP_GAP) - CHIP_GAP,
    lines: ranks * (rows + CHIP_GAP) - CHIP_GAP };
}

/** Direction, chip, and row and column of the router that a link leaves. */
function linkParts(place, { rows, across }) {
  const number = columns.link_number[place], of = rows * across * facts.chips, router = number % of;
  return { way: Math.floor(number / of), chip: Math.floor(router / (rows * across)),
    row: Math.floor(router / across) % rows, column: router % across };
}

/** The tiles of a router: "tile 12", "tiles 12 to 15"; of a place in a ring without any: "no tile". */
function tilesAt(chip, row, column, { across }) {
  const first = columns.router_of.indexOf(row * across + column);
  if (first < 0) return "no tile";
  const before = chip * columns.router_of.length, last = columns.router_of.lastIndexOf(row * across + column);
  return first === last ? `tile ${before + first}` : `tiles ${before + first} to ${before + last}`;
}

/** [what a link leads from and to, short; the same with columns and rows]. */
function linkWords(place) {
  const plan = routerPlan(), { way, chip, row, column } = linkParts(place, plan);
  const here = tilesAt(chip, row, column, plan);
  const at = (x, y) => `column ${x}, row ${y}`;
  if (plan.crossbar) {
    const over = way ? "from the middle" : "to the middle";
    return [`${here} ${over}`, `${at(column, row)} (${here}), ${over}`];
  }
  const [across, down, words] = WAYS[way];
  const x = (column + across + plan.across) % plan.across, y = (row + down + plan.rows) % plan.rows;
  const there = tilesAt(chip, y, x, plan);
  return [`${here} → ${there}`, `${at(column, row)} (${here}) ${words} to ${at(x, y)} (${there})`];
}

function loadWords(place) {
  return `${counted(routers.size[place], "byte")}, in use for ${counted(routers.cycles[place], "cycle")}`;
}
