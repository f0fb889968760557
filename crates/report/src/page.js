// Tooltips, arrow keys, highlighting, sorting, downloads. The page reads without it.
"use strict";
(() => {
  document.documentElement.classList.add("scripts");
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
    return copy;
  }
  const element = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // A drawing as a file of its own: its title above it, its legend below, and a margin around.
  function drawing(figure, svg) {
    const MARGIN = 16, LINE = 18, FONT = 12, GAP = 18;
    const color = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
    const measure = document.createElement("canvas").getContext("2d");
    measure.font = FONT + "px sans-serif";
    const wide = (text) => measure.measureText(text).width;
    // Names at the ends of lines may stand beyond the edges.
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map((n) => n / 10);
    const { x, width: seen } = svg.getBBox();
    const beyond = Math.max(0, (x + seen) / 10 - width);
    const whole = 2 * MARGIN + width + beyond;
    const out = element("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": "sans-serif", "font-size": FONT });
    const text = (x, y, words, more) => out.append(element("text", { x, y, fill: color("--text"), ...more }, words));
    const ground = element("rect", { width: whole, fill: getComputedStyle(document.body).backgroundColor });
    out.append(ground);
    let y = MARGIN;
    const panel = svg.closest(".panel").querySelector("h4");
    const view = svg.closest(".view").dataset.label;
    const title = [figure.querySelector("h3").textContent, view].filter(Boolean).join(", ");
    for (const [words, size, weight] of [[title, 15, 600], [panel && panel.textContent, 13, 400]]) {
      if (!words) continue;
      measure.font = weight + " " + size + "px sans-serif";
      let line = "";
      const lines = [];
      for (const word of words.split(" ")) {
        if (line && wide(line + " " + word) > whole - 2 * MARGIN) { lines.push(line); line = word; }
        else line = line ? line + " " + word : word;
      }
      for (const part of [...lines, line]) {
        y += size;
        text(MARGIN, y, part, { "font-size": size, "font-weight": weight });
        y += size / 3;
      }
    }
    measure.font = FONT + "px sans-serif";
    y += 10;
    const copy = standalone(svg);
    for (const [key, value] of Object.entries({ x: MARGIN, y, width, height, overflow: "visible" })) copy.setAttribute(key, value);
    out.append(copy);
    y += height + 8;
    const names = new Set([...svg.querySelectorAll("[data-n]")].map((e) => e.dataset.n));
    const entries = [...figure.querySelectorAll(".legend button")].filter((b) => names.has(b.dataset.n));
    let at = MARGIN;
    if (entries.length) y += LINE;
    for (const button of entries) {
      const needed = 26 + wide(button.dataset.n) + GAP;
      if (at > MARGIN && at + needed > whole - MARGIN) { at = MARGIN; y += LINE; }
      const swatch = standalone(button.querySelector("svg"));
      for (const [key, value] of Object.entries({ x: at, y: y - 10, width: 20, height: 12 })) swatch.setAttribute(key, value);
      out.append(swatch);
      text(at + 26, y, button.dataset.n);
      at += needed;
    }
    y += MARGIN;
    ground.setAttribute("height", y);
    out.setAttribute("viewBox", "0 0 " + whole + " " + y);
    out.setAttribute("width", whole);
    out.setAttribute("height", y);
    return new XMLSerializer().serializeToString(out);
  }
  function csv(figure) {
    const { columns, rows } = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const field = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [columns, ...rows].map((row) => row.map(field).join(",") + "\n").join("");
  }
  // Older browsers do not print what is folded.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    unfolded.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => { unfolded.forEach((details) => { details.open = false; }); unfolded = []; });
  for (const button of document.querySelectorAll("[data-get]")) {
    const figure = button.closest("figure");
    button.addEventListener("click", () => {
      if (button.dataset.get === "csv") { save(figure.id + ".csv", "text/csv", csv(figure)); return; }
      [...figure.querySelectorAll(".view svg")].filter(shown).forEach((svg, n) =>
        save(figure.id + (n ? "-" + (n + 1) : "") + ".svg", "image/svg+xml", drawing(figure, svg)));
    });
  }
})();
