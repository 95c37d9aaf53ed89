"use strict";
const search = document.getElementById("search");
const boxes = [...document.querySelectorAll(".tools input[type=checkbox]")];
const cards = [...document.querySelectorAll(".card")];
const shown = document.getElementById("shown");
function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const levels = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  let count = 0;
  for (const card of cards) {
    const text = card.textContent.toLowerCase();
    card.hidden = !levels.has(card.dataset.level) || !words.every((word) => text.includes(word));
    count += card.hidden ? 0 : 1;
  }
  shown.textContent = `${count} of ${cards.length} shown`;
}
search.addEventListener("input", filter);
for (const box of boxes) box.addEventListener("change", filter);
filter();
