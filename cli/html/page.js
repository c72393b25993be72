"use strict";
// Search, filter, sorting and colours. Without this script the page is complete, and plain.
(() => {
  const byId = (id) => document.getElementById(id);
  const search = byId("search");
  const choice = byId("choice");
  const count = byId("count");
  const entries = [...document.querySelectorAll(".entry")];
  const lists = document.querySelectorAll(".cards");
  const texts = new Map();
  const QUERY = "#q=";

  const textOf = (entry) => {
    if (!texts.has(entry)) texts.set(entry, entry.textContent.toLowerCase());
    return texts.get(entry);
  };

  // The search is in the address, so that what somebody found can be sent.
  const keepSearch = () => {
    const hash = search.value ? `${QUERY}${encodeURIComponent(search.value)}` : "";
    if (hash || location.hash.startsWith(QUERY)) history.replaceState(null, "", hash || "#");
  };

  const update = () => {
    keepSearch();
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const value = choice ? choice.value : "";
    let shown = 0;
    for (const entry of entries) {
      const hasValue = entry.dataset.value !== undefined;
      const fits = (!value || !hasValue || entry.dataset.value === value) &&
        words.every((word) => textOf(entry).includes(word));
      if (entry.hidden === fits) entry.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    for (const list of lists) {
      list.hidden = [...list.children].every((entry) => entry.hidden);
    }
    count.textContent = words.length || value ? `${shown} of ${entries.length} entries shown` : "";
  };

  let isUpdating = false;
  const updateSoon = () => {
    if (isUpdating) return;
    isUpdating = true;
    requestAnimationFrame(() => { isUpdating = false; update(); });
  };

  const sort = (header, column) => {
    const body = header.closest("table").tBodies[0];
    const isAscending = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
    const order = new Intl.Collator("en", { numeric: true });
    const rows = [...body.rows].map((row) => [row.cells[column].textContent, row]);
    rows.sort(([a], [b]) => (isAscending ? 1 : -1) * order.compare(a, b));
    body.append(...rows.map(([, row]) => row));
  };

  for (const header of document.querySelectorAll("thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    const column = [...header.parentElement.children].indexOf(header);
    button.addEventListener("click", () => sort(header, column));
    header.replaceChildren(button);
  }

  const root = document.documentElement;
  byId("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });

  search.addEventListener("input", updateSoon);
  if (choice) choice.addEventListener("change", updateSoon);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      search.value = "";
      update();
    }
  });
  byId("toolbar").hidden = false;

  const readSearch = () => {
    if (!location.hash.startsWith(QUERY)) return;
    try {
      search.value = decodeURIComponent(location.hash.slice(QUERY.length));
    } catch {
      return; // Not an address that a search has made.
    }
    update();
  };
  window.addEventListener("hashchange", readSearch);
  readSearch();
})();
