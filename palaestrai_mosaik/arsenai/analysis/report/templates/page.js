"use strict";
// Tables are sorted by a click on a heading; folds open where a link leads, and on paper. All else works without this.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    if (!head.dataset.column) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = head.classList.contains("number");
      const key = (row) => {
        const text = row.cells[place].textContent.trim();
        if (!numbers) return text;
        const power = text.split(" (")[0].replace("\u2212", "-").replace(/[,<\u2009]/g, "").split("\u00d710");
        const digits = (power[1] || "").replace(/[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]/g,
          (c) => "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079".indexOf(c)).replace("\u207b", "-");
        return power[0] === "" ? NaN : parseFloat(power[0]) * 10 ** (digits ? +digits : 0);
      };
      const rows = [...table.tBodies[0].rows].map((row, i) => [key(row), i, row]);
      rows.sort(([a, i], [b, j]) => {
        if (numbers && (isNaN(a) || isNaN(b))) return isNaN(a) - isNaN(b) || i - j;
        const order = numbers ? a - b : a < b ? -1 : a > b ? 1 : 0;
        return (down ? -order : order) || i - j;
      });
      table.tBodies[0].append(...rows.map(([, , row]) => row));
    });
  });
}
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
};
addEventListener("hashchange", reveal);
reveal();
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((fold) => { fold.open = true; });
});
addEventListener("afterprint", () => { closed.forEach((fold) => { fold.open = false; }); });
