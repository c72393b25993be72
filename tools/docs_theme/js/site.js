// What scrolls sideways can be scrolled with the keyboard.
for (const wide of document.querySelectorAll("main pre, main table")) wide.tabIndex = 0;
// The theme's bar is no landmark.
document.querySelector("body > .navbar").setAttribute("role", "banner");
