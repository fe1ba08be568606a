// Draws the run whose data stand in the page.
const data = JSON.parse(document.getElementById("data").textContent);
const choice = (id) => document.getElementById(id);
const view = new RunView();

function drawReport() {
  const axis = choice("axis").value;
  view.show(data.run, data.logs, axis, data.axes[axis], Number(choice("smoothing").value));
}

choice("run").append(view.root);
choice("axis").replaceChildren(...chosenAxis(data.axes));
for (const id of ["axis", "smoothing"]) choice(id).addEventListener("change", drawReport);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawReport);
drawReport();
