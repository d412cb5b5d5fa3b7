"use strict";
// A link to a folded part unfolds it; all parts are unfolded for printing, and folded again thereafter.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const part = target && target.closest("details");
  if (part) { part.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", unfold);
const folded = [];
addEventListener("beforeprint", () => {
  folded.push(...document.querySelectorAll("details:not([open])"));
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => { for (const part of folded.splice(0)) part.open = false; });

const escaped = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
const shown = v => (Math.abs(v) < 1e-3 && v || Math.abs(v) >= 1e5 ? v.toExponential(2) : String(+v.toPrecision(4))).replace("-", "−");
const unpacked = ([low, high, text]) => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), out = new Float64Array(bytes.length / 2);
  for (let k = 0; k < out.length; k++) {
    const step = bytes[2 * k] | bytes[2 * k + 1] << 8;
    out[k] = step === 65535 ? NaN : low + (high - low) * step / 65534;
  }
  return out;
};

// Current selections, by name and options of a choice; plots with the same choice are linked.
const choices = new Map();
const choiceOf = (name, options) => {
  const key = JSON.stringify([name, options]);
  if (!choices.has(key)) {
    const choice = { name, options, at: 0, told: [] };
    choice.set = at => { choice.at = at; for (const tell of choice.told) tell(); };
    choices.set(key, choice);
  }
  return choices.get(key);
};
let controls = 0;
const chooser = choice => {
  const box = document.createElement("div"), name = `choice-${controls++}`;
  box.className = "choice";
  if (choice.options.length <= 9 && choice.options.join("").length <= 90) {
    box.setAttribute("role", "radiogroup");
    box.setAttribute("aria-label", choice.name);
    box.innerHTML = choice.options.map((option, k) =>
      `<label><input type="radio" name="${name}" value="${k}"><span>${escaped(option)}</span></label>`).join("");
    choice.told.push(() => { box.querySelectorAll("input")[choice.at].checked = true; });
  } else {
    box.innerHTML = `<label>${escaped(choice.name)} <select>`
      + choice.options.map((option, k) => `<option value="${k}">${escaped(option)}</option>`).join("") + "</select></label>";
    choice.told.push(() => { box.querySelector("select").value = choice.at; });
  }
  box.addEventListener("change", event => choice.set(Number(event.target.value)));
  return box;
};
for (const link of document.querySelectorAll("a[data-joint]")) {
  link.addEventListener("click", () => {
    for (const choice of choices.values()) {
      const at = Number(link.dataset[choice.name]);
      if (at < choice.options.length) choice.set(at);
    }
  });
}

// Tick marks of an axis: [value, text].
const ticks = (low, high, count) => {
  const raw = (high - low) / count, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find(times => times * size >= raw * 0.999), out = [];
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    const big = Math.max(Math.abs(low), Math.abs(high)) >= 1e6 || decimals > 6;
    out.push([k * step, (big ? (k * step).toExponential(1) : (k * step).toFixed(decimals)).replace(/^-/, "−")]);
  }
  return out.length > 1 || count > 12 ? out : ticks(low, high, 2 * count);
};

const plot = figure => {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const chosen = data.choices.map(([name, options]) => choiceOf(name, options));
  figure.insertAdjacentHTML("beforeend", '<div class="choices"></div><figcaption></figcaption><div class="legend"></div>'
    + `<svg role="img" tabindex="0" aria-label="${escaped(data.label)}"></svg>`
    + "<small>Drag to zoom, double-click to show all; with keys: ← → + − 0</small>");
  const [caption, legend, svg] = ["figcaption", ".legend", "svg"].map(name => figure.querySelector(name));
  for (const choice of chosen) figure.querySelector(".choices").append(chooser(choice));
  const id = `clip-${controls++}`;
  let view, range, whole, frame, drawn = 0, dragged = null;

  const take = () => {
    view = data.views[chosen.reduce((at, choice) => at * choice.options.length + choice.at, 0)];
    if (!view.ready) {
      view.columns = view.columns.map(unpacked);
      view.curves = view.panels.flatMap((panel, row) => panel.curves.map(curve => {
        const x = view.columns[curve.x], [y, less] = curve.y.map(k => view.columns[k]);
        return { ...curve, row, x, y: less ? y.map((v, k) => v - less[k]) : y, line: !curve.style };
      }));
      view.ready = true;
    }
    let low = Infinity, high = -Infinity;
    for (const { x } of view.curves) for (const v of x) { if (v < low) low = v; if (v > high) high = v; }
    const before = whole, same = before && Math.abs(before[0] - low) + Math.abs(before[1] - high) < 1e-3 * (high - low);
    whole = high > low ? [low, high] : [low - 1, low + 1];
    if (!same || range === before) range = whole; // another joint of the same run keeps the visible range
    caption.textContent = view.caption;
    caption.hidden = !view.caption;
    const names = new Map(view.curves.map(curve => [curve.name, curve]));
    legend.innerHTML = '<span class="at"></span>' + [...names].map(([name, curve]) =>
      `<span><i class="${curve.style || "line"}" style="--own: var(--${curve.colour})"></i>${escaped(name)} <output></output></span>`).join("");
    [...names.values()].forEach((curve, k) => {
      for (const other of view.curves) if (other.name === curve.name) other.output = legend.querySelectorAll("output")[k];
    });
    draw();
  };

  const vertical = (panel, row) => {
    if (panel.limits && range === whole) return panel.limits;
    let low = Infinity, high = -Infinity;
    for (const { row: own, x, y, line } of view.curves) {
      if (own !== row) continue;
      for (let k = 0; k < x.length; k++) {
        const near = line && (x[k + 1] >= range[0] && x[k] < range[0] || x[k - 1] <= range[1] && x[k] > range[1]);
        if ((x[k] >= range[0] && x[k] <= range[1] || near) && y[k] === y[k]) {
          if (y[k] < low) low = y[k];
          if (y[k] > high) high = y[k];
        }
      }
    }
    if (!(high >= low)) return [-1, 1];
    const room = 0.06 * (high - low) || Math.abs(high) || 1;
    return [low - room, high + room];
  };

  const draw = () => {
    const width = drawn = svg.clientWidth || 700, height = svg.clientHeight || 320;
    const limits = view.panels.map(vertical), above = 17, below = 36, right = width - 10;
    const room = height - below - above * view.panels.length, shares = view.panels.reduce((sum, p) => sum + p.share, 0);
    let top = 0;
    const rows = view.panels.map((panel, k) => {
      const from = top + above, to = from + room * panel.share / shares;
      top = to;
      const marks = ticks(...limits[k], Math.max(3, Math.round((to - from) / 38)));
      return { panel, from, to, marks, at: v => to - (v - limits[k][0]) / (limits[k][1] - limits[k][0]) * (to - from) };
    });
    const left = 12 + 6.7 * Math.max(3, ...rows.flatMap(row => row.marks.map(([, text]) => text.length)));
    const across = v => left + (v - range[0]) / (range[1] - range[0]) * (right - left);
    frame = { left, right, rows, across, back: px => range[0] + (px - left) / (right - left) * (range[1] - range[0]) };
    const out = [], foot = rows[rows.length - 1].to, marks = ticks(...range, Math.max(3, Math.round((right - left) / 85)));
    rows.forEach(({ panel, from, to, marks: levels, at }, row) => {
      out.push(`<clipPath id="${id}-${row}"><rect x="${left}" y="${from}" width="${right - left}" height="${to - from}"/></clipPath>`);
      for (const [a, b] of view.gaps || []) {
        const [u, v] = [a, b].map(x => Math.min(right, Math.max(left, across(x))));
        if (v > u) out.push(`<rect class="gap" x="${u}" y="${from}" width="${v - u}" height="${to - from}"/>`);
      }
      for (const [v, text] of levels) {
        out.push(`<path class="${v ? "rule" : "zero"}" d="M${left} ${at(v).toFixed(1)}H${right}"/>`
          + `<text class="end" x="${left - 6}" y="${at(v).toFixed(1)}">${text}</text>`);
      }
      for (const [v] of marks) out.push(`<path class="rule" d="M${across(v).toFixed(1)} ${from}V${to}"/>`);
      out.push(`<text class="title" x="${left}" y="${from - 8}">${escaped(panel.label)}</text>`);
    });
    for (const { row, x, y, style, colour, width: stroke } of view.curves) {
      let path = "", down = false;
      const { at } = rows[row], [low, high] = [range[0], range[1]];
      for (let k = 0; k < x.length; k++) {
        if (y[k] !== y[k]) { down = false; continue; }
        if (x[k + 1] < low || x[k - 1] > high) continue;
        const u = across(x[k]).toFixed(1), v = at(y[k]).toFixed(1);
        if (style === "rings") path += `M${u - 3.5} ${v}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0`;
        else if (style === "dots") path += `M${u} ${v}h0`;
        else path += (down ? "L" : "M") + u + " " + v;
        down = true;
      }
      out.push(`<path class="${style || "curve"}" clip-path="url(#${id}-${row})" style="stroke: var(--${colour}); stroke-width: ${stroke || ""}" d="${path}"/>`);
    }
    for (const [v, text] of marks) out.push(`<text class="middle" x="${across(v).toFixed(1)}" y="${foot + 11}">${text}</text>`);
    out.push(`<text class="title middle" x="${(left + right) / 2}" y="${foot + 27}">${escaped(view.x)}</text><g class="hover"></g>`);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.innerHTML = out.join("");
  };

  // The nearest point of a curve: along x for lines, on the screen for dots and rings.
  const nearest = ({ x, y, row, line }, px, py) => {
    const { across, rows } = frame, { at } = rows[row];
    let best = -1, least = Infinity;
    for (let k = 0; k < x.length; k++) {
      if (y[k] !== y[k]) continue;
      const away = line ? Math.abs(across(x[k]) - px) : Math.hypot(across(x[k]) - px, at(y[k]) - py);
      if (away < least) { least = away; best = k; }
    }
    return least < 40 ? best : -1;
  };
  const read = (px, py) => {
    const { left, right, rows, across } = frame, dots = [], hover = svg.querySelector(".hover");
    let at = frame.back(Math.min(right, Math.max(left, px)));
    const found = view.curves.map(curve => nearest(curve, px, py)), lead = view.curves.findIndex((curve, k) => curve.line && found[k] >= 0);
    if (lead >= 0) at = view.curves[lead].x[found[lead]];
    view.curves.forEach((curve, k) => {
      const i = found[k];
      curve.output.textContent = i < 0 ? "" : shown(curve.y[i]);
      if (i >= 0) dots.push(`<circle r="3.5" cx="${across(curve.x[i])}" cy="${rows[curve.row].at(curve.y[i])}" style="fill: var(--${curve.colour})"/>`);
    });
    legend.querySelector(".at").textContent = `${view.x.replace(/ \[.*/, "")} ${+at.toPrecision(6)}`;
    const u = across(at);
    hover.innerHTML = rows.map(({ from, to }) => `<path d="M${u} ${from}V${to}"/>`).join("") + dots.join("");
  };
  const leave = () => {
    for (const place of legend.querySelectorAll("output, .at")) place.textContent = "";
    const hover = svg.querySelector(".hover");
    if (hover) hover.innerHTML = "";
  };

  const show = (low, high) => {
    const span = high - low, all = whole[1] - whole[0];
    if (!(span < all * 0.999)) range = whole;
    else if (span > all * 1e-4) {
      low = Math.max(whole[0], Math.min(whole[1] - span, low));
      range = [low, low + span];
    }
    leave();
    draw();
  };
  const zoomed = times => moved(0, times);
  const moved = (share, times = 1) => {
    const middle = (range[0] + range[1]) / 2, half = times * (range[1] - range[0]) / 2;
    show(middle + (2 * share - 1) * half, middle + (2 * share + 1) * half);
  };
  const acts = {
    ArrowLeft: () => moved(-0.3), ArrowRight: () => moved(0.3), "+": () => zoomed(0.5), "=": () => zoomed(0.5), "-": () => zoomed(2),
    "0": () => show(...whole), Escape: () => show(...whole),
  };
  svg.addEventListener("keydown", event => {
    if (acts[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); acts[event.key](); }
  });
  const place = event => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  svg.addEventListener("pointerdown", event => {
    if (event.button) return;
    dragged = place(event)[0];
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    const [px, py] = place(event);
    if (dragged === null) return read(px, py);
    const [u, v] = [dragged, px].map(x => Math.min(frame.right, Math.max(frame.left, x))).sort((a, b) => a - b);
    const foot = frame.rows[frame.rows.length - 1].to, top = frame.rows[0].from;
    svg.querySelector(".hover").innerHTML = `<rect x="${u}" y="${top}" width="${v - u}" height="${foot - top}"/>`;
  });
  svg.addEventListener("pointerup", event => {
    if (dragged === null) return;
    const from = dragged, px = place(event)[0];
    dragged = null;
    if (Math.abs(px - from) > 6) show(...[from, px].map(frame.back).sort((a, b) => a - b));
    else read(...place(event));
  });
  svg.addEventListener("pointercancel", () => { dragged = null; leave(); });
  svg.addEventListener("pointerleave", () => { if (dragged === null) leave(); });
  svg.addEventListener("dblclick", () => show(...whole));

  for (const choice of chosen) choice.told.push(take);
  new ResizeObserver(() => { if (view && svg.clientWidth && svg.clientWidth !== drawn) draw(); }).observe(svg);
  if (!chosen.length) take();
};
for (const figure of document.querySelectorAll("figure.plot")) plot(figure);
for (const choice of choices.values()) for (const tell of choice.told) tell();

if (location.hash) unfold();
