// Plays the policy in `environment`, step after step, by onnxruntime-web.
const about = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const context = element("picture").getContext("2d");
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = new URL("onnxruntime-web/", document.baseURI).href;

let session = null, state, memory, steps, total, playing = true;
const returns = [];

function begin() {
  state = environment.begin();
  memory = about.state.map((units) => new ort.Tensor("float32", new Float32Array(units), [1, units]));
  steps = total = 0;
}

async function step() {
  const seen = state;
  const observation = new ort.Tensor("float32", Float32Array.from(state), [1, state.length]);
  const given = Object.fromEntries(memory.map((part, i) => [`state_${i}`, part]));
  const outputs = await session.run({ [about.input]: observation, ...given });
  if (state !== seen) return; // a new episode has begun meanwhile
  memory = about.state.map((_, i) => outputs[`next_state_${i}`]);
  const action = Number(outputs.action.data[0]);
  const [next, reward, terminated] = environment.step(state, action);
  [state, total, steps] = [next, total + reward, steps + 1];
  element("action").textContent = environment.actions[action];
  if (terminated || steps >= environment.mostSteps) {
    returns.push(total);
    begin();
  }
}

function show() {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  environment.draw(context, state, getComputedStyle(document.body).color);
  element("steps").textContent = steps;
  element("return").textContent = total.toFixed(0);
  element("episodes").textContent = returns.length;
  const mean = returns.reduce((sum, each) => sum + each, 0) / returns.length;
  element("mean").textContent = returns.length ? mean.toFixed(1) : "-";
}

async function load(model) {
  element("model").disabled = true;
  const loaded = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  begin();
  returns.length = 0;
  session = loaded;
  element("episodes").textContent = 0;
  element("model").disabled = false;
}

async function play() {
  await load(about.models[0]);
  for (;;) {
    const due = performance.now() + 1000 / environment.rate;
    if (playing) await step();
    show();
    await new Promise((resume) => setTimeout(resume, Math.max(0, due - performance.now())));
  }
}

function fail(error) {
  element("error").textContent = `${error.message ?? error}. The page needs a server: python -m http.server`;
  throw error;
}

for (const model of about.models) element("model").add(new Option(model));
element("model").addEventListener("change", (event) => load(event.target.value).catch(fail));
element("again").addEventListener("click", begin);
element("play").addEventListener("click", () => {
  playing = !playing;
  element("play").textContent = playing ? "Pause" : "Play";
});
begin();
play().catch(fail);
