"use strict";
document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  const answer = await fetch("/login", { method: "POST", body: JSON.stringify({ token }) });
  if (answer.ok) location.replace("/");
  else document.getElementById("told").textContent = await answer.text();
});
