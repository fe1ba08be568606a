"use strict";
// CartPole-v1 as gymnasium has it: the same numbers, up to the last bits of sine and cosine.
const environment = {
  rate: 50,
  mostSteps: 500,
  actions: ["left", "right"],

  begin() {
    return Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05);
  },

  // The next state, the reward and whether the pole has fallen or the cart has left.
  step([x, xDot, theta, thetaDot], action) {
    const gravity = 9.8, poleMass = 0.1, totalMass = poleMass + 1.0, length = 0.5, tau = 0.02;
    const poleMassLength = poleMass * length, force = action === 1 ? 10.0 : -10.0;
    const cos = Math.cos(theta), sin = Math.sin(theta);
    const temp = (force + poleMassLength * (thetaDot * thetaDot) * sin) / totalMass;
    const thetaAcc =
      (gravity * sin - cos * temp) / (length * (4.0 / 3.0 - (poleMass * (cos * cos)) / totalMass));
    const xAcc = temp - (poleMassLength * thetaAcc * cos) / totalMass;
    const state = [x + tau * xDot, xDot + tau * xAcc, theta + tau * thetaDot, thetaDot + tau * thetaAcc];
    const fallen = Math.abs(state[0]) > 2.4 || Math.abs(state[2]) > (12 * 2 * Math.PI) / 360;
    return [state, 1.0, fallen];
  },

  draw(context, [x, , theta], colour) {
    const { width, height } = context.canvas, scale = width / 4.8, ground = height * 0.75;
    context.fillStyle = context.strokeStyle = colour;
    context.lineWidth = 1;
    context.strokeRect(0, ground, width, 0);
    const cart = width / 2 + x * scale;
    context.fillRect(cart - 25, ground - 15, 50, 30);
    context.lineWidth = 8;
    context.beginPath();
    context.moveTo(cart, ground - 15);
    context.lineTo(cart + scale * Math.sin(theta), ground - 15 - scale * Math.cos(theta));
    context.stroke();
  },
};
