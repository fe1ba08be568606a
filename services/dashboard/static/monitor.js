"use strict";
// What the monitor of a live run says, and what a user may tell the run.

const ACTIONS = [
  // kind, words, its value: name, least, step; null without
  ["SaveCheckpoint", "Save a checkpoint", null],
  ["SetActors", "Actors", ["count", 1, 1]],
  ["SetChain", "Rung of the ladder", ["rung", 0, 1]],
  ["SetLearningRate", "Base learning rate", ["rate", 0, "any"]],
  ["SetEntropyCost", "Entropy cost", ["cost", 0, "any"]],
  ["StopRun", "Stop the run", null],
];
const TOKEN = "aclearn-actions-token";

function monitorOf(monitor) {
  if (monitor === null) return null;
  const processes = monitor.processes.map((each) => `${each.name}: process ${each.pid} on ${each.host}`);
  return element(
    "section", {}, element("h3", {}, "Monitor"),
    monitor.words ? element("p", { class: "warning" }, monitor.words) : null,
    monitor.reason ? element("p", {}, `the run ends: ${monitor.reason}`) : null,
    processes.length ? element("details", {}, element("summary", {}, `Processes: ${processes.length}`), element("pre", { tabindex: 0 }, processes.join("\n"))) : null,
    monitor.events.length ? element("h4", {}, "Events") : null,
    monitor.events.length ? element("ol", { class: "events" }, ...monitor.events.map((text) => element("li", {}, text))) : null,
  );
}

async function tell(run, kind, values, said) {
  const token = document.getElementById("actions-token").value.trim();
  said.textContent = "asking";
  const answer = await fetch("/api/actions", {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ run, kind, values }),
  });
  if (answer.ok) sessionStorage.setItem(TOKEN, token);
  const text = await answer.text();
  let words = text.trim();
  try { words = JSON.parse(text).error || "done; the events say what follows"; } catch { /* it is no JSON */ }
  said.textContent = words;
}

// The form of a run's actions; it stays while the run is shown, so that an input keeps its text.
function actionsOf(id, monitor) {
  const said = element("p", { role: "status", id: "action-said" });
  const token = element("input", { type: "password", id: "actions-token", autocomplete: "off" });
  token.value = sessionStorage.getItem(TOKEN) || "";
  const rows = ACTIONS.map(([kind, words, value]) => {
    const refusal = monitor.actions[kind];
    if (refusal) return element("p", {}, `${words}: not possible. ${refusal}`);
    const button = element("button", { type: "submit" }, value ? `Set ${words.toLowerCase()}` : words);
    const form = element("form", { id: `action-${kind}` });
    let input = null;
    if (value) {
      const now = monitor.now[kind];
      input = element("input", { type: "number", min: value[1], step: value[2], required: "", id: `value-${kind}` });
      if (now !== null && now !== undefined) input.value = now;
      form.append(element("label", { for: `value-${kind}` }, words), input, element("span", { id: `present-${kind}` }));
    }
    form.append(button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (kind === "StopRun" && !window.confirm(`Stop the run ${id}? It saves a checkpoint and ends.`)) return;
      tell(id, kind, value ? { [value[0]]: Number(input.value) } : {}, said)
        .catch((error) => { said.textContent = error.message; });
    });
    return form;
  });
  return element(
    "section", {}, element("h3", {}, "Actions"),
    element("p", {}, element("label", { for: "actions-token" }, "Token "), token),
    ...rows, said,
  );
}

let monitorParts = null;

// Shows both for a run; `run` is null where none is shown.
function showMonitor(run) {
  const actions = document.getElementById("actions");
  const live = run !== null && run.monitor !== null;
  monitorParts ||= new Parts(document.getElementById("monitor"));
  monitorParts.show([["monitor", live ? run.monitor : null, monitorOf]]);
  // the answers of a monitor say which actions are possible
  const acts = live && run.acts && Object.keys(run.monitor.actions).length > 0;
  const shown = acts ? `${run.id} ${JSON.stringify(run.monitor.actions)}` : "";
  if (actions.dataset.shown !== shown) {
    actions.dataset.shown = shown;
    actions.replaceChildren(...(acts ? [actionsOf(run.id, run.monitor)] : []));
  }
  for (const [kind, present] of Object.entries(acts ? run.monitor.present : {})) {
    const place = document.getElementById(`present-${kind}`);
    if (place && present !== null) place.textContent = `the schedule makes it ${present} now`;
  }
}
