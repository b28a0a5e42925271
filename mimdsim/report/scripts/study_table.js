// The table of all points of a study: columns from JSON, drawn some rows at a time.
"use strict";
(() => {
  const columns = JSON.parse(document.getElementById("points-data").textContent);
  const root = document.getElementById("points-root");
  const atOnce = Number(root.dataset.atOnce);
  const count = columns.length ? columns[0].values.length : 0;
  const every = Array.from({ length: count }, (_, row) => row);
  const state = { rows: every, from: 0, sorted: -1, sign: 1 };
  const find = id => document.getElementById(id);
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
  const head = find("points-table").tHead.rows[0];

  function shown(column, row) {
    const value = column.values[row];
    if (value === null) return "–";
    return column.number && typeof value === "number" ? format.format(value) : String(value);
  }
  const texts = new Array(count);
  /** A row as one text, for the filter. */
  function text(row) {
    if (texts[row] === undefined) texts[row] = columns.map(column => shown(column, row)).join(" ").toLowerCase();
    return texts[row];
  }
  function named(name) {
    const wanted = name.toLowerCase();
    const fits = [one => one === wanted, one => one.endsWith("." + wanted), one => one.startsWith(wanted)];
    for (const fit of fits) {
      const column = columns.find(each => fit(each.name.toLowerCase()));
      if (column) return column;
    }
    return undefined;
  }
  const compare = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b,
  };
  /** A test of rows for one word of the filter. */
  function test(word) {
    const parts = /^([^<>=]+)(<=|>=|<|>|=)([^<>=]+)$/.exec(word);
    const column = parts && named(parts[1]);
    if (column) {
      const number = Number(parts[3].replaceAll(",", ""));
      if (column.number && !Number.isNaN(number)) {
        return row => typeof column.values[row] === "number" && compare[parts[2]](column.values[row], number);
      }
      if (parts[2] === "=") return row => shown(column, row).toLowerCase() === parts[3].toLowerCase();
    }
    return row => text(row).includes(word.toLowerCase());
  }
  function chosen() {
    const tests = find("points-filter").value.split(/\s+/).filter(Boolean).map(test);
    const rows = every.filter(row => tests.every(each => each(row)));
    if (state.sorted >= 0) {
      const values = columns[state.sorted].values;
      rows.sort((a, b) => {
        const [x, y] = [values[a], values[b]];
        if (x === null || y === null) return (x === null) - (y === null);
        if (typeof x === "number" && typeof y === "number") return state.sign * (x - y);
        return state.sign * String(x).localeCompare(String(y), "en", { numeric: true });
      });
    }
    state.rows = rows;
  }
  function draw() {
    const rows = state.rows.slice(state.from, state.from + atOnce);
    const body = document.createElement("tbody");
    for (const row of rows) {
      const line = body.insertRow();
      for (const column of columns) {
        const cell = line.insertCell();
        cell.textContent = shown(column, row);
        if (column.number) cell.className = "number";
        if (cell.textContent === "the answer") line.className = "answered";
      }
    }
    find("points-table").tBodies[0].replaceWith(body);
    const all = count.toLocaleString("en");
    const part = state.rows.length < count ? `${state.rows.length.toLocaleString("en")} of ${all}` : all;
    const last = Math.min(state.from + atOnce, state.rows.length);
    find("points-count").textContent = rows.length ? `rows ${state.from + 1} to ${last} of ${part}` : `none of ${all}`;
    find("points-before").disabled = state.from === 0;
    find("points-after").disabled = last >= state.rows.length;
  }
  function again() {
    state.from = 0;
    chosen();
    draw();
  }
  columns.forEach((column, place) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.number) cell.className = "number";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.unit ? `${column.name}, ${column.unit}` : column.name;
    button.addEventListener("click", () => {
      state.sign = state.sorted === place ? -state.sign : 1;
      state.sorted = place;
      head.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", state.sign > 0 ? "ascending" : "descending");
      again();
    });
    cell.append(button);
    head.append(cell);
  });
  find("points-filter").addEventListener("input", again);
  find("points-before").addEventListener("click", () => { state.from = Math.max(0, state.from - atOnce); draw(); });
  find("points-after").addEventListener("click", () => { state.from += atOnce; draw(); });
  function field(value) {
    if (value === null) return "";
    return typeof value === "number" ? String(value) : window.mimdsimTables.quoted(value);
  }
  function csv() {
    const names = columns.map(column => field(column.unit ? `${column.name} [${column.unit}]` : column.name));
    const lines = state.rows.map(row => columns.map(column => field(column.values[row])).join(","));
    return [names.join(","), ...lines].join("\n") + "\n";
  }
  find("points-copy").addEventListener("click", () => window.mimdsimTables.copy(csv(), find("points-copy")));
  root.hidden = false;
  find("points-wait").hidden = true;
  again();
  document.documentElement.dataset.points = "drawn";
})();
