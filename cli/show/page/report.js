"use strict";

// A column of numbers ("1,234.5", "~12 %", "10 to 20": by the first) is sorted by number, any other as
// text; "-", which stands for no value, always comes last.
function key(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replaceAll(",", ""));
  return text === "-" || text === "" ? null : Number.isNaN(number) ? text : number;
}

function sort(head) {
  const table = head.closest("table");
  const column = [...head.parentNode.children].indexOf(head);
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
  const numbers = rows.every(([value]) => value === null || typeof value === "number");
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = numbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return up ? order : -order;
  });
  body.append(...rows.map(([, row]) => row));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("table:not(.scores) th button");
  if (button) sort(button.parentNode);
});

// Each mark of a figure carries its exact figures as a label.
const NEAR_PX = 24;
const tip = document.getElementById("tip");
const marks = '[role="graphics-symbol"][aria-label]:not([aria-roledescription="axis"], '
  + '[aria-roledescription="legend"], [aria-roledescription="title"])';

// The marks under the pointer (one may hide another), or else the nearest mark.
function marksAt(svg, x, y) {
  let hits = [];
  let least = NEAR_PX;
  for (const mark of svg.querySelectorAll(marks)) {
    const box = mark.getBoundingClientRect();
    const aside = Math.max(box.left - x, 0, x - box.right);
    const distance = Math.hypot(aside, Math.max(box.top - y, 0, y - box.bottom));
    if (distance < least) {
      least = distance;
      hits = [mark];
    } else if (distance === least && distance === 0) {
      hits.push(mark);
    }
  }
  return hits;
}

function show(event) {
  const svg = event.target.closest("figure svg");
  const hits = svg ? marksAt(svg, event.clientX, event.clientY) : [];
  tip.hidden = hits.length === 0;
  if (tip.hidden) return;
  tip.textContent = hits.map((mark) => mark.getAttribute("aria-label")).join("\n\n");
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const below = event.clientY + 18;
  const above = event.clientY - box.height - 10;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below + box.height > window.innerHeight ? above : below}px`;
}

document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// Each figure comes in two widths. The narrow one is shown where the wide one's letters would be too small.
const figures = [...document.querySelectorAll(".drawing")].map((place) => {
  const wide = place.querySelector("svg");
  const narrow = place.querySelector("template").content.querySelector("svg");
  return { place, wide, narrow, least: parseFloat(wide.style.minWidth) };
});

let printing = false;

function choose({ place, wide, narrow, least }, printed = false) {
  const chosen = !printed && place.clientWidth < least ? narrow : wide;
  const shown = place.querySelector("svg");
  if (shown !== chosen) shown.replaceWith(chosen);
}

function chooseAll() {
  for (const figure of figures) choose(figure);
}

// A link may lead into a folded part.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}

window.addEventListener("hashchange", reveal);

chooseAll();
window.addEventListener("resize", chooseAll);
window.addEventListener("afterprint", () => {
  printing = false;
  chooseAll();
});
// A folded part has no width until it is unfolded.
document.addEventListener("toggle", (event) => {
  for (const figure of figures) if (event.target.contains(figure.place)) choose(figure, printing);
}, true);

// A printed page can't be unfolded; tables of single runs would take hundreds of pages.
window.addEventListener("beforeprint", () => {
  printing = true;
  for (const details of document.querySelectorAll("details:not(.raw)")) details.open = true;
  for (const figure of figures) choose(figure, true);
});
