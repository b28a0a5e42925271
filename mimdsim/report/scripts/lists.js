// Tables of the panels: they sort like those of the page and can be copied like them.

/** A table: headers; rows of cells, each a text, an element, or {text, value} for numbers. */
function tableOf(id, caption, headers, rows, note = "") {
  const numeric = headers.map((_, column) => rows.some(cells => isNumber(cells[column])));
  const head = make("tr", {}, ...headers.map((header, column) =>
    make("th", { scope: "col", className: numeric[column] ? "number" : "" }, header)));
  const body = make("tbody", {}, ...rows.map(cells => make("tr", {}, ...cells.map(cellOf))));
  const table = make("table", { id, className: "sortable" }, make("thead", {}, head), body);
  const figure = make("figure", { className: "table" }, make("figcaption", {}, caption),
    make("div", { className: "scroll" }, table));
  if (note) figure.append(make("p", { className: "note" }, note));
  window.mimdsimTables.prepare(table);
  return figure;
}

/** Whether a cell is {text, value}; buttons have a value too. */
function isNumber(cell) {
  return typeof cell === "object" && !(cell instanceof Node);
}

function cellOf(cell) {
  if (isNumber(cell)) {
    return make("td", { className: "number", data: { value: cell.value } }, cell.text);
  }
  return make("td", {}, cell);
}

function count(value) {
  return { text: thousands(value), value };
}

function size(value) {
  return { text: bytes(value), value };
}

function percent(part, total) {
  return { text: share(part, total), value: total ? part / total : 0 };
}

/** Pairs of a word and what it says, in two columns. */
function factList(...pairs) {
  const list = make("dl", { className: "walk-facts" });
  for (const [word, ...said] of pairs) list.append(make("dt", {}, word), make("dd", {}, ...said));
  return list;
}
