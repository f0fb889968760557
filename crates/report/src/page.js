// Tooltips, arrow keys, highlighting, sorting, downloads. The page reads without it.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  let at = null;

  const shown = (svg) => svg.getClientRects().length > 0;
  const seriesOf = (figure, name) =>
    [...figure.querySelectorAll("[data-n]")].filter((e) => e.dataset.n === name);

  function look(figure, name) {
    figure.querySelectorAll(".seen").forEach((e) => e.classList.remove("seen"));
    figure.classList.toggle("looking", name !== null);
    if (name !== null) seriesOf(figure, name).forEach((e) => e.classList.add("seen"));
  }

  // Shows the value of a mark: the name of its group, then its own title.
  function tell(mark, x, y) {
    if (at) at.classList.remove("at");
    at = mark;
    if (!mark) { tip.hidden = true; return; }
    mark.classList.add("at");
    tip.textContent = mark.parentNode.dataset.n + "\n" + titleOf(mark);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y - box.height - 12 < 4 ? y + 16 : y - box.height - 12) + "px";
  }
  // A title of its own would show a second tooltip.
  const titles = new WeakMap();
  function titleOf(mark) {
    const title = mark.querySelector("title");
    if (title) { titles.set(mark, title.textContent); title.remove(); }
    return titles.get(mark);
  }

  const marksOf = (svg) => [...svg.querySelectorAll(".series circle, .series rect")];
  function middle(mark) {
    const box = mark.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  }
  function nearest(svg, x, y) {
    let best = null, least = 28 * 28;
    for (const mark of marksOf(svg)) {
      const box = mark.getBoundingClientRect();
      const [mx, my] = mark.tagName === "rect"
        ? [Math.max(box.left, Math.min(x, box.right)), Math.max(box.top, Math.min(y, box.bottom))]
        : middle(mark);
      const d = (mx - x) ** 2 + (my - y) ** 2;
      if (d < least) { least = d; best = mark; }
    }
    return best;
  }

  for (const svg of document.querySelectorAll("figure .view svg")) {
    const figure = svg.closest("figure");
    svg.addEventListener("pointermove", (event) => {
      const mark = nearest(svg, event.clientX, event.clientY);
      if (mark) { tell(mark, ...middle(mark)); look(figure, mark.parentNode.dataset.n); }
      else { tell(null); look(figure, null); }
    });
    const leave = () => { tell(null); look(figure, null); };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    // Left and right along a series, up and down from one to the next.
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Escape") { leave(); return; }
      const groups = [...svg.querySelectorAll(".series")].filter((g) => g.querySelector("circle, rect"));
      if (!step || !groups.length) return;
      event.preventDefault();
      let g = at && svg.contains(at) ? groups.indexOf(at.parentNode) : -1;
      let n = 0;
      if (g < 0) { g = groups.length - 1; }
      else {
        n = [...at.parentNode.querySelectorAll("circle, rect")].indexOf(at) + step[1];
        g = (g + step[0] + groups.length) % groups.length;
      }
      const marks = [...groups[g].querySelectorAll("circle, rect")];
      const mark = marks[Math.max(0, Math.min(n, marks.length - 1))];
      tell(mark, ...middle(mark));
      look(figure, groups[g].dataset.n);
    });
  }

  for (const button of document.querySelectorAll(".legend button")) {
    const figure = button.closest("figure");
    const name = button.dataset.n;
    for (const enter of ["pointerenter", "focus"]) button.addEventListener(enter, () => look(figure, name));
    for (const leave of ["pointerleave", "blur"]) button.addEventListener(leave, () => look(figure, null));
    button.addEventListener("click", () => {
      const pinned = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", pinned);
      figure.querySelectorAll(".series").forEach((e) => {
        if (e.dataset.n !== name) return;
        e.classList.toggle("pinned", pinned);
        if (pinned) e.parentNode.append(e);
      });
    });
  }

  for (const head of document.querySelectorAll("thead th")) {
    const column = [...head.parentNode.children].indexOf(head);
    head.querySelector("button").addEventListener("click", () => {
      const body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") !== "descending" && column > 0
        || head.getAttribute("aria-sort") === "ascending";
      head.parentNode.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
      };
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en");
        return down ? -order : order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  }

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = Object.assign(document.createElement("a"), { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  // A drawing by itself has no style sheet: each element takes along what it looks like.
  const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-weight", "paint-order"];
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const [from, to] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
    from.forEach((element, n) => {
      const style = getComputedStyle(element);
      for (const look of LOOKS) to[n].setAttribute(look, style.getPropertyValue(look));
      to[n].removeAttribute("tabindex");
    });
    const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor })
      .forEach(([key, value]) => ground.setAttribute(key, value));
    copy.prepend(ground);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width / 10);
    copy.setAttribute("height", height / 10);
    copy.setAttribute("font-family", "sans-serif");
    return new XMLSerializer().serializeToString(copy);
  }
  function csv(figure) {
    const { columns, rows } = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const field = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [columns, ...rows].map((row) => row.map(field).join(",") + "\n").join("");
  }
  for (const button of document.querySelectorAll("[data-get]")) {
    const figure = button.closest("figure");
    button.addEventListener("click", () => {
      if (button.dataset.get === "csv") { save(figure.id + ".csv", "text/csv", csv(figure)); return; }
      [...figure.querySelectorAll(".view svg")].filter(shown).forEach((svg, n) =>
        save(figure.id + (n ? "-" + (n + 1) : "") + ".svg", "image/svg+xml", standalone(svg)));
    });
  }
})();
