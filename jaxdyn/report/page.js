for (const box of document.querySelectorAll(".filter")) {
  const rows = document.getElementById(box.dataset.table).tBodies[0].rows;
  box.hidden = false;
  box.querySelector("input").addEventListener("input", event => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
}
// Ellipsoids turn under the pointer: an ellipsoid of shape A, seen by the view V, is an ellipse of shape V A V^T.
for (const svg of document.querySelectorAll("svg.bodies")) {
  const given = svg.dataset.view.split(" ").map(Number), unit = 1000;
  const numbers = text => text.split(" ").map(Number), dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  let yaw = 0, tilt = 0, held = null;
  const draw = () => {
    // turn about the vertical, then tilt towards the viewer
    const spin = v => [v[0] * Math.cos(yaw) - v[1] * Math.sin(yaw), v[0] * Math.sin(yaw) + v[1] * Math.cos(yaw), v[2]];
    const right = spin(given.slice(0, 3)), up = given.slice(3), into = spin([-given[1], given[0], 0]);
    const above = up.map((x, k) => x * Math.cos(tilt) + into[k] * Math.sin(tilt));
    const flat = p => [unit * dot(right, p), -unit * dot(above, p)];
    for (const shape of svg.children) {
      const p = numbers(shape.dataset.p), [x, y] = flat(p), set = (name, value) => shape.setAttribute(name, value);
      if (shape.tagName === "line") {
        const [u, v] = flat(p.slice(3));
        set("x1", x); set("y1", y); set("x2", u); set("y2", v);
      } else if (shape.tagName === "circle") { set("cx", x); set("cy", y); }
      else if (shape.tagName === "text") { set("x", x); set("y", y); }
      else {
        const a = numbers(shape.dataset.a), times = v => [0, 3, 6].map(k => dot(a.slice(k, k + 3), v));
        const xx = dot(right, times(right)), xy = -dot(above, times(right)), yy = dot(above, times(above));
        const mean = (xx + yy) / 2, half = Math.hypot((xx - yy) / 2, xy), angle = Math.atan2(2 * xy, xx - yy) / 2;
        set("rx", unit * Math.sqrt(Math.max(0, mean + half))); set("ry", unit * Math.sqrt(Math.max(0, mean - half)));
        set("transform", `translate(${x} ${y}) rotate(${angle * 180 / Math.PI})`);
      }
    }
  };
  svg.addEventListener("pointerdown", event => { held = [event.clientX, event.clientY, yaw, tilt]; svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointermove", event => {
    if (!held) return;
    yaw = held[2] - (event.clientX - held[0]) / 120;
    tilt = Math.max(-1.55, Math.min(1.55, held[3] + (event.clientY - held[1]) / 120));
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { held = null; });
}
