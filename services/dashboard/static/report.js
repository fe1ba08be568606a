// Draws the run whose data stand in the page.
const data = JSON.parse(document.getElementById("data").textContent);
const choice = (id) => document.getElementById(id);

function drawReport() {
  const points = Number(choice("smoothing").value);
  const axis = choice("axis").value;
  choice("run").replaceChildren(runOf(data.run, data.curves, data.logs, axis, data.axes[axis], points));
}

choice("axis").replaceChildren(
  ...Object.entries(data.axes).map(([value, words]) => element("option", { value }, words)),
);
for (const id of ["axis", "smoothing"]) choice(id).addEventListener("change", drawReport);
drawReport();
