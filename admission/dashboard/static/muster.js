// What pages do beyond links and forms: open a level of the tree in place, keep themselves fresh, and remember a theme.
// Without scripts all of it is still there, a page at a time.

const policy = window.trustedTypes?.createPolicy("muster", { createHTML: (text) => text });

/** Parse what this server has rendered; nothing else is ever passed here. */
function parsed(text) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(text) : text;
  return template.content;
}

/** Fetch from this server; null where the session has ended, and the page is then asked for anew. */
async function fetched(url, signal) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, redirect: "error", signal });
  if (answer.status === 401) {
    location.reload();
    return null;
  }
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.text();
}

// The tree.

const open = new Set();

function below(row) {
  const level = Number(row.dataset.level);
  const found = [];
  for (let next = row.nextElementSibling; next && Number(next.dataset.level) > level; next = next.nextElementSibling) {
    found.push(next);
  }
  return found;
}

function asButton(twist) {
  if (twist.getAttribute("role") === "button") return;
  twist.setAttribute("role", "button");
  twist.setAttribute("aria-expanded", "false");
}

async function expand(twist) {
  const row = twist.closest("tr");
  const name = twist.dataset.children;
  const url = new URL(twist.href);
  url.searchParams.set("rows", "");
  twist.setAttribute("aria-busy", "true");
  try {
    const text = await fetched(url);
    if (text === null || twist.getAttribute("aria-expanded") === "true") return;
    const rows = parsed(`<table><tbody>${text}</tbody></table>`).querySelectorAll("tr");
    row.after(...rows);
    rows.forEach((one) => one.querySelectorAll("[data-children]").forEach(asButton));
    if (rows.length === 100) {
      const more = document.createElement("tr");
      more.dataset.level = String(Number(row.dataset.level) + 1);
      const cell = more.insertCell();
      cell.colSpan = 11;
      const link = document.createElement("a");
      link.href = twist.href;
      link.textContent = `More queues below ${name}`;
      cell.append(link);
      rows[rows.length - 1].after(more);
    }
    twist.setAttribute("aria-expanded", "true");
    open.add(name);
  } catch {
    location.href = twist.href;
  } finally {
    twist.removeAttribute("aria-busy");
  }
}

function collapse(twist) {
  below(twist.closest("tr")).forEach((row) => {
    row.querySelectorAll("[data-children]").forEach((one) => open.delete(one.dataset.children));
    row.remove();
  });
  twist.setAttribute("aria-expanded", "false");
  open.delete(twist.dataset.children);
}

function toggle(twist) {
  if (twist.getAttribute("aria-expanded") === "true") collapse(twist);
  else expand(twist);
}

document.querySelectorAll("[data-children]").forEach(asButton);
document.addEventListener("click", (event) => {
  const twist = event.target.closest("[data-children]");
  if (!twist || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  toggle(twist);
});
document.addEventListener("keydown", (event) => {
  const row = event.target.closest?.("[data-tree] tr");
  const twist = row?.querySelector("[data-children]");
  if (!row) return;
  const links = (to) => to?.querySelector("th a:not(.twist), th a")?.focus();
  const opened = twist?.getAttribute("aria-expanded") === "true";
  if (event.key === "ArrowDown") links(row.nextElementSibling);
  else if (event.key === "ArrowUp") links(row.previousElementSibling);
  else if (event.key === "ArrowRight" && twist && !opened) expand(twist);
  else if (event.key === "ArrowLeft" && twist && opened) collapse(twist);
  else if (event.key === " " && event.target === twist) toggle(twist);
  else return;
  event.preventDefault();
});

// Fresh pages: the parts marked `data-live` are fetched again, unless somebody is in the middle of something there.

const FRESH = 10_000;
const wanted = document.querySelector("[data-live-switch]");

function busy(part) {
  const chosen = getSelection();
  return (
    (part.contains(document.activeElement) && document.activeElement !== part) ||
    (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) ||
    open.size > 0
  );
}

async function refresh() {
  if (document.hidden || !wanted?.checked) return;
  const parts = [...document.querySelectorAll("[data-live]")];
  if (parts.some(busy)) return;
  try {
    const text = await fetched(location.href, AbortSignal.timeout(FRESH));
    if (text === null) return;
    const fresh = parsed(text);
    const found = [...fresh.querySelectorAll("[data-live]")];
    if (found.length !== parts.length || parts.some(busy)) return;
    parts.forEach((part, at) => {
      const unfolded = [...part.querySelectorAll("details")].map((one) => one.open);
      const left = part.scrollLeft;
      part.replaceChildren(...found[at].childNodes);
      part.querySelectorAll("details").forEach((one, number) => (one.open = unfolded[number] ?? one.open));
      part.querySelectorAll("[data-children]").forEach(asButton);
      part.scrollLeft = left;
    });
    const time = fresh.querySelector("footer time");
    if (time) document.querySelector("footer time").replaceWith(time);
  } catch {
    // Away for a moment: what is shown says as of when it is.
  }
}

if (wanted) {
  wanted.hidden = false;
  document.querySelector("[data-live-label]").textContent = "kept fresh";
  wanted.checked = localStorage.getItem("muster-fresh") !== "no";
  wanted.addEventListener("change", () => localStorage.setItem("muster-fresh", wanted.checked ? "yes" : "no"));
  setInterval(refresh, FRESH);
  document.addEventListener("visibilitychange", refresh);
}

// The theme: a cookie, so that the next page comes in it at once.

const themes = ["", "light", "dark"];
const names = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const button = document.querySelector("[data-theme-switch]");

function shown(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.textContent = names[theme];
}

if (button) {
  button.hidden = false;
  shown(document.documentElement.dataset.theme ?? "");
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "";
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    document.cookie = `muster-theme=${next}; path=/; max-age=31536000; samesite=strict`;
    shown(next);
  });
}

// A choice from a list is enough; a text waits for the button, or Enter.
document.querySelectorAll("form[data-search] select").forEach((list) => {
  list.addEventListener("change", () => list.form.requestSubmit());
});
