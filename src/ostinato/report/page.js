"use strict";
for (const figure of document.querySelectorAll("figure")) {
  const plot = figure.querySelector(".plot"), source = figure.querySelector("script");
  if (!plot || !source) continue;
  const { last, series } = JSON.parse(source.textContent);
  const cursor = document.createElement("div"), tip = document.createElement("div");
  cursor.className = "cursor"; tip.className = "tip"; cursor.hidden = tip.hidden = true;
  plot.append(cursor, tip);
  let at = null;
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (steps[middle] < step) low = middle + 1; else high = middle; }
    return low > 0 && step - steps[low - 1] <= steps[low] - step ? low - 1 : low;
  };
  const show = step => {
    const all = series.filter(one => one.steps.length).map(one => one.steps[nearest(one.steps, step)]);
    if (!all.length) return;
    at = all.reduce((best, one) => Math.abs(one - step) < Math.abs(best - step) ? one : best);
    const head = document.createElement("div");
    head.className = "t"; head.textContent = "step " + at.toLocaleString("en");
    tip.replaceChildren(head);
    for (const one of series) {
      if (!one.steps.length) continue;
      const index = nearest(one.steps, at);
      const row = document.createElement("div"), color = document.createElement("i"), value = document.createElement("b");
      row.style.setProperty("--c", `var(--r${one.color})`);
      value.textContent = one.values[index];
      const there = one.steps[index] === at ? "" : ` (${one.steps[index].toLocaleString("en")})`;
      row.append(color, one.name + there, value); tip.append(row);
    }
    cursor.hidden = tip.hidden = false;
    const x = at / last * plot.clientWidth;
    cursor.style.left = x + "px";
    const right = x > plot.clientWidth / 2;
    tip.style.left = right ? "" : x + 10 + "px"; tip.style.right = right ? plot.clientWidth - x + 10 + "px" : "";
  };
  const hide = () => { cursor.hidden = tip.hidden = true; };
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    show(Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * last);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!way) return;
    event.preventDefault();
    const steps = [...new Set(series.flatMap(one => one.steps))].sort((a, b) => a - b);
    if (steps.length) show(steps[at === null ? 0 : Math.min(Math.max(nearest(steps, at) + way, 0), steps.length - 1)]);
  });
}
