"use strict";
const search = document.getElementById("search");
const boxes = [...document.querySelectorAll(".tools input[type=checkbox]")];
const cards = [...document.querySelectorAll(".card")];
const sections = [...document.querySelectorAll("section")];
const shown = document.getElementById("shown");
const texts = new Map(cards.map((card) => [card, textOf(card)]));

function textOf(card) {
  const model = card.closest("section").querySelector("h2").textContent;
  return `${model} ${card.textContent}`.toLowerCase();
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const levels = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  const all = words.length === 0 && levels.size === boxes.length;
  for (const card of cards) {
    const text = texts.get(card);
    card.hidden = !levels.has(card.dataset.level) || !words.every((word) => text.includes(word));
  }
  for (const section of sections) {
    section.hidden = !all && section.querySelector(".card:not([hidden])") === null;
  }
  const count = cards.filter((card) => !card.hidden).length;
  shown.textContent = `${count} of ${cards.length} shown`;
}

search.addEventListener("input", filter);
for (const box of boxes) box.addEventListener("change", filter);
filter();
