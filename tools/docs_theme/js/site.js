// What scrolls sideways can be scrolled with the keyboard.
for (const wide of document.querySelectorAll("main pre, main table")) wide.tabIndex = 0;
// The theme's bar is no landmark.
document.querySelector("body > .navbar").setAttribute("role", "banner");
// The search listens to its field once its index is here; it is told then of what was typed before.
addEventListener("load", () => {
  const field = document.getElementById("mkdocs-search-query");
  const search = () => field.value && field.dispatchEvent(new Event("keyup"));
  search();
  // Opened as a file, a page has no worker.
  window.searchWorker?.addEventListener("message", ({ data }) => data.allowSearch && search());
});
