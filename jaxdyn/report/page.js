for (const box of document.querySelectorAll(".filter")) {
  const rows = document.getElementById(box.dataset.table).tBodies[0].rows;
  box.hidden = false;
  box.querySelector("input").addEventListener("input", event => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
}
