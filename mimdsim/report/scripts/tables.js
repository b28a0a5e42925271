// Tables of the page: they sort by a click on a header, are filtered by a word, and can be copied as CSV.
"use strict";
document.documentElement.classList.add("script");
window.mimdsimTables = (() => {
  function key(row, column) {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }
  function sortable(table) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        // numbers start with the largest, texts with the first letter
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        table.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const rows = Array.from(table.tBodies[0].rows);
        rows.sort((a, b) => sign * compare(key(a, column), key(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }
  /** A cell for a spreadsheet: the number it is sorted by, or its text, which is never taken for a formula. */
  function field(cell) {
    if (cell.dataset.value !== undefined) return cell.dataset.value;
    return quoted(cell.textContent.trim().replace(/\s+/g, " "));
  }
  function quoted(text) {
    const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  function csv(table) {
    const rows = Array.from(table.rows).filter(row => !row.hidden);
    return rows.map(row => Array.from(row.cells).map(field).join(",")).join("\n") + "\n";
  }
  /** Copy a text; where the browser refuses, leave it selected in a field below the table. */
  async function copy(text, button) {
    const words = button.textContent, done = () => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = words; }, 1500);
    };
    try {
      await navigator.clipboard.writeText(text);
      return done();
    } catch {
      const area = document.createElement("textarea");
      area.className = "csv-text";
      area.value = text;
      area.readOnly = true;
      button.parentElement.querySelectorAll(".csv-text").forEach(one => one.remove());
      button.after(area);
      area.select();
      if (document.execCommand("copy")) {
        area.remove();
        done();
      }
    }
  }
  function copied(table) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "csv";
    button.textContent = "Copy as CSV";
    button.addEventListener("click", () => copy(csv(table), button));
    (table.closest(".scroll") || table).after(button);
  }
  function prepare(table) {
    if (table.classList.contains("sortable")) sortable(table);
    copied(table);
  }
  document.querySelectorAll("[data-copy]").forEach(button => {
    button.addEventListener("click", () => copy(button.dataset.copy, button));
  });
  document.querySelectorAll("table[id^=data-], table:not([id])").forEach(prepare);
  document.querySelectorAll("input[data-filter]").forEach(input => {
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      Array.from(document.getElementById(input.dataset.filter).tBodies[0].rows).forEach(row => {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
      });
    });
  });
  return { prepare, csv, copy, quoted };
})();
