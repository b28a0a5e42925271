// The packed profile: facts is its header, columns are its arrays (walk.py says how they lie).
let facts = null;
let columns = null;
let memory = null; // bytes in use, superstep by superstep and within it tile by tile
const NUMBERS = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array,
  int32: Int32Array, float64: Float64Array };

async function unpack(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  columns = {};
  for (const [name, { kind, shape, at }] of Object.entries(facts.columns)) {
    const count = shape.reduce((product, extent) => product * extent, 1);
    columns[name] = new NUMBERS[kind](buffer, 4 + length + at, count);
  }
  for (const name of facts.rows) columns[name] = new Rows(name);
  facts.steps = facts.supersteps.length;
  memory = memoryOf();
}

/** A column by superstep and tile: of every row, only what lies between its first and last number that is not zero. */
class Rows {
  constructor(name) {
    this.values = columns[name];
    this.first = columns[`${name}_first`];
    this.begins = columns[`${name}_begins`];
    this.count = this.first.length;
    this.last = { at: -1, row: null };
  }

  /** All tiles of a row. */
  row(at) {
    if (this.last.at !== at) {
      const row = new this.values.constructor(facts.tiles);
      row.set(this.values.subarray(this.begins[at], this.begins[at + 1]), this.first[at]);
      this.last = { at, row };
    }
    return this.last.row;
  }

  at(row, tile) {
    const place = this.begins[row] + tile - this.first[row];
    return tile >= this.first[row] && place < this.begins[row + 1] ? this.values[place] : 0;
  }

  /** The numbers of a row without the zeros before and after them. */
  some(at) {
    return this.values.subarray(this.begins[at], this.begins[at + 1]);
  }

  /** The sum of all rows, for every tile. */
  total() {
    const found = new Float64Array(facts.tiles);
    for (let at = 0; at < this.count; at++) {
      const values = this.some(at), first = this.first[at];
      for (let place = 0; place < values.length; place++) found[first + place] += values[place];
    }
    return found;
  }
}

/** Bytes of all variables that live, of vertices, code and exchange buffers, on every tile in every superstep. */
function memoryOf() {
  const { tiles, steps } = facts;
  const { live, vertices, code } = columns;
  const change = new Int32Array((steps + 1) * tiles);
  for (let variable = 0; variable < facts.variables.length; variable++) {
    const [from, to] = heldBy(variable);
    const first = live[2 * variable] * tiles, after = (live[2 * variable + 1] + 1) * tiles;
    for (let at = from; at < to; at++) {
      change[first + columns.holding_tiles[at]] += columns.holding_bytes[at];
      change[after + columns.holding_tiles[at]] -= columns.holding_bytes[at];
    }
  }
  const always = new Float64Array(tiles);
  for (let tile = 0; tile < tiles; tile++) always[tile] = vertices[tile] + code[tile];
  for (let at = tiles; at < steps * tiles; at++) change[at] += change[at - tiles];
  const found = change.subarray(0, steps * tiles);
  for (let superstep = 0, at = 0; superstep < steps; superstep++) {
    const buffers = columns.buffers.row(superstep);
    for (let tile = 0; tile < tiles; tile++, at++) found[at] += buffers[tile] + always[tile];
  }
  return found;
}

/** Where a variable lies: [first, after the last] of holding_tiles and holding_bytes. */
function heldBy(variable) {
  const entry = columns.holding[variable];
  return [columns.holding_begins[entry], columns.holding_begins[entry + 1]];
}

/** Bytes of a variable on a tile; the tiles of an entry ascend. */
function bytesOn(variable, tile) {
  let [low, high] = heldBy(variable);
  const end = high;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (columns.holding_tiles[middle] < tile) low = middle + 1;
    else high = middle;
  }
  return low < end && columns.holding_tiles[low] === tile ? columns.holding_bytes[low] : 0;
}

/** [variable, category, bytes] of what lies on a tile in a superstep, largest first. */
function onTile(tile, superstep) {
  const found = [["", "code", columns.code[tile]], ["", "vertices", columns.vertices[tile]],
    ["", "exchange buffers", columns.buffers.at(superstep, tile)]];
  for (let variable = 0; variable < facts.variables.length; variable++) {
    if (columns.live[2 * variable] <= superstep && superstep <= columns.live[2 * variable + 1]) {
      found.push([facts.variables[variable], facts.categories[variable], bytesOn(variable, tile)]);
    }
  }
  return found.filter(one => one[2] > 0).sort((a, b) => b[2] - a[2]);
}

/** The superstep in which a tile holds most, the first of several. */
function peakOf(tile) {
  let best = 0;
  for (let superstep = 1; superstep < facts.steps; superstep++) {
    if (memory[superstep * facts.tiles + tile] > memory[best * facts.tiles + tile]) best = superstep;
  }
  return best;
}

/** The places of the largest values, largest first; zeros are left out. */
function largest(values, most) {
  const order = Array.from({ length: values.length }, (_, at) => at).filter(at => values[at] > 0);
  return order.sort((a, b) => values[b] - values[a] || a - b).slice(0, most);
}

function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

function maximum(values) {
  let most = values.length ? values[0] : 0;
  for (const value of values) if (value > most) most = value;
  return most;
}
