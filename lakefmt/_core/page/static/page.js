// The page reads without this script. With it: late parts load by themselves, the timeline is dragged and zoomed, new commits appear.
"use strict";
(() => {
  const body = document.body;
  const reach = (address) => fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });

  // --- theme -------------------------------------------------------------------------------------------------------
  const themes = ["auto", "light", "dark"];
  const themeButton = document.getElementById("theme");
  const showTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    themeButton.querySelector("span").textContent = theme;
  };
  const storedTheme = () => { try { return localStorage.getItem("lakefmt-theme") || "auto"; } catch { return "auto"; } };
  if (themeButton) {
    themeButton.hidden = false;
    showTheme(themes.includes(storedTheme()) ? storedTheme() : "auto");
    themeButton.addEventListener("click", () => {
      const next = themes[(themes.indexOf(themeButton.querySelector("span").textContent) + 1) % themes.length];
      try { localStorage.setItem("lakefmt-theme", next); } catch { /* it lasts for this page */ }
      showTheme(next);
    });
  }

  // --- parts that come later ---------------------------------------------------------------------------------------
  // What the server sends is markup whose texts it has escaped; nothing else is put into the page.
  const fill = async (place, address) => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await reach(address);
      const text = await answer.text();
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      place.innerHTML = text;
      place.classList.add("filled");
    } catch (error) {
      const line = document.createElement("p");
      line.textContent = `This part did not come: ${error.message}`;
      place.append(line);
    }
    place.removeAttribute("aria-busy");
  };
  const fillParts = (root) => root.querySelectorAll("[data-src]").forEach((place) => fill(place, place.dataset.src));

  const fillMain = async (place) => {
    const answer = await reach(place.dataset.main);
    const other = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (!other) return;
    document.getElementById("main").replaceChildren(...document.importNode(other, true).childNodes);
    fillParts(document);
    fit();
  };

  const drawnWidth = (svg) => svg.viewBox.baseVal.width;
  // Pictures are as wide as their place: the server draws them for it.
  const fit = () => document.querySelectorAll("[data-fit]").forEach((place) => {
    const width = Math.max(280, Math.floor(place.clientWidth));
    const svg = place.querySelector("svg");
    if (svg && Math.abs(drawnWidth(svg) - width) > 24) fill(place, `${place.dataset.fit}&width=${width}`);
  });

  // --- timeline ----------------------------------------------------------------------------------------------------
  const timeline = document.getElementById("timeline");
  let waiting = 0, asked = 0, window_ = null;

  const picture = () => document.getElementById("timeline-picture");
  const numbers = () => {
    const data = picture().dataset;
    return { start: +data.start, end: +data.end, first: +data.first, last: +data.last, archived: data.archived === "1" };
  };
  const gutter = (width) => (width >= 600 ? 112 : 84);

  const load = async (start, end, { keepAddress = false, archived = null, focus = false } = {}) => {
    const now = numbers();
    const most = Math.max(now.last - now.first, 1) * 20 + 3600;
    const middle = (start + end) / 2, span = Math.min(Math.max(end - start, 0.02), most);
    start = middle - span / 2; end = middle + span / 2;
    window_ = { start, end };
    // Who goes beyond the oldest active instant sees the archive.
    const edge = Math.max(now.last - now.first, 1) * 0.03;
    if (archived === null && timeline.querySelector("[data-step=archive]") && start < now.first - edge) archived = true;
    const query = new URLSearchParams(location.search);
    for (const name of ["part", "before", "limit"]) query.delete(name);
    query.set("start", start.toFixed(3)); query.set("end", end.toFixed(3));
    if (archived ?? now.archived) query.set("archived", "1"); else query.delete("archived");
    const shown = `${timeline.dataset.base}/timeline?${query}`;
    query.set("part", "timeline"); query.set("width", String(Math.max(280, Math.floor(picture().clientWidth))));
    const number = ++asked;
    timeline.setAttribute("aria-busy", "true");
    const answer = await reach(`${timeline.dataset.base}/timeline?${query}`);
    const text = await answer.text();
    if (number !== asked) return;  // a later one is under way
    timeline.removeAttribute("aria-busy");
    if (!answer.ok) return;
    timeline.innerHTML = text;
    window_ = null;
    settle();
    if (focus) picture().querySelector("a.lf-bar[tabindex='0']")?.focus({ preventScroll: true });
    if (!keepAddress) history.replaceState(null, "", shown);
    if (picture().dataset.complete === "0") soon(() => load(start, end, { keepAddress: true }), 150);
  };
  const soon = (work, delay = 30) => { clearTimeout(waiting); waiting = setTimeout(work, delay); };
  const shift = (part) => { const w = window_ || numbers(); const by = (w.end - w.start) * part; return [w.start + by, w.end + by]; };
  const zoom = (factor, at = 0.5) => {
    const w = window_ || numbers(), span = w.end - w.start, centre = w.start + span * at;
    return [centre - span * factor * at, centre + span * factor * (1 - at)];
  };
  // One bar can be reached by Tab, the others by arrows: a picture of two hundred is no wall for the keyboard.
  const settle = () => {
    const bars = [...picture().querySelectorAll("a.lf-bar")];
    bars.forEach((bar, place) => bar.setAttribute("tabindex", place === bars.length - 1 ? "0" : "-1"));
  };
  const step = (by) => {
    const bars = [...picture().querySelectorAll("a.lf-bar")];
    const place = bars.indexOf(document.activeElement);
    const next = bars[Math.min(bars.length - 1, Math.max(0, place + by))];
    if (!next) return;
    bars.forEach((bar) => bar.setAttribute("tabindex", bar === next ? "0" : "-1"));
    next.focus();
  };

  if (timeline) {
    settle();
    const place = () => Math.floor(picture().clientWidth);
    const begin = numbers();
    if (Math.abs(place() - drawnWidth(picture().querySelector("svg"))) > 24 || picture().dataset.complete === "0") {
      load(begin.start, begin.end, { keepAddress: true });
    }
    timeline.addEventListener("click", (event) => {
      const link = event.target.closest("[data-step]");
      if (!link) return;
      event.preventDefault();
      const now = numbers(), edge = Math.max(now.last - now.first, 1) * 0.02;
      const moves = {
        earlier: () => load(...shift(-0.5)), later: () => load(...shift(0.5)), in: () => load(...zoom(1 / 3)), out: () => load(...zoom(3)),
        all: () => load(now.first - edge, now.last + edge), archive: () => { location.href = link.getAttribute("href"); },
      };
      moves[link.dataset.step]();
    });
    timeline.addEventListener("wheel", (event) => {
      if (!event.target.closest("#timeline-picture")) return;
      event.preventDefault();
      const box = picture().getBoundingClientRect(), left = gutter(box.width);
      const at = Math.min(1, Math.max(0, (event.clientX - box.left - left) / (box.width - left)));
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      window_ = sideways ? pair(shift(event.deltaX / 600)) : pair(zoom(Math.exp(event.deltaY / 400), at));
      soon(() => load(window_.start, window_.end));
    }, { passive: false });
    const pair = ([start, end]) => ({ start, end });
    let drag = null;
    timeline.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.target.closest("#timeline-picture")) drag = { x: event.clientX, moved: 0, ...(window_ || numbers()) };
    });
    addEventListener("pointermove", (event) => {
      if (!drag) return;
      drag.moved = event.clientX - drag.x;
      if (Math.abs(drag.moved) < 4) return;
      picture().classList.add("dragged");
      picture().querySelector("svg").style.transform = `translateX(${drag.moved}px)`;
    });
    addEventListener("pointerup", () => {
      if (!drag) return;
      const { moved, start, end } = drag;
      drag = null;
      if (Math.abs(moved) < 4) return;
      picture().classList.remove("dragged");
      const by = -moved / (picture().clientWidth - gutter(picture().clientWidth)) * (end - start);
      load(start + by, end + by);
      addEventListener("click", (event) => { event.preventDefault(); event.stopPropagation(); }, { capture: true, once: true });
      setTimeout(() => dispatchEvent(new MouseEvent("click")), 0);
    });
    // Two marked commits lead to what changed between them: Shift and a click, or the key m.
    let marked = "";
    const mark = (bar) => {
      if (!bar || !bar.dataset.instant) return;
      bar.classList.add("lf-marked");
      if (marked && marked !== bar.dataset.instant) {
        const [from, to] = [marked, bar.dataset.instant].sort();
        location.href = `${timeline.dataset.base}/changes?from=${from}&to=${to}`;
        return;
      }
      marked = bar.dataset.instant;
      document.getElementById("live").textContent = `Marked ${marked}: mark another commit to see what changed between them`;
    };
    timeline.addEventListener("click", (event) => {
      const bar = event.shiftKey && event.target.closest("a.lf-bar");
      if (bar) { event.preventDefault(); mark(bar); }
    });
    timeline.addEventListener("dragstart", (event) => event.preventDefault());
    timeline.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest("#timeline-picture")) return;
      const now = numbers(), edge = Math.max(now.last - now.first, 1) * 0.02;
      const keys = {
        m: () => mark(event.target.closest("a.lf-bar")), ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => load(...zoom(1 / 2), { focus: true }), "=": () => load(...zoom(1 / 2), { focus: true }),
        "-": () => load(...zoom(2), { focus: true }), PageUp: () => load(...shift(-0.5), { focus: true }), PageDown: () => load(...shift(0.5), { focus: true }),
        Home: () => load(now.first - edge, now.last + edge, { focus: true }),
        End: () => load(now.last - (now.end - now.start), now.last + (now.end - now.start) * 0.05, { focus: true }),
      };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
  }

  // --- new commits -------------------------------------------------------------------------------------------------
  const live = document.getElementById("live");
  if (body.dataset.table && "EventSource" in window) {
    const source = new EventSource(`/events?table=${encodeURIComponent(body.dataset.table)}`);
    let before = 0;
    source.addEventListener("instants", async (event) => {
      const told = JSON.parse(event.data);
      before += 1;
      live.textContent = `New on the timeline: ${told.latest || "an instant"}`;
      live.dataset.seen = String(before);
      if (!timeline) return;
      const now = numbers();
      // Who looks at the end of the timeline goes on looking at it.
      if (now.end >= now.last) await load(now.start, Date.now() / 1000 > now.last ? Math.max(now.end, now.last + (now.end - now.start) * 0.05) : now.end, { keepAddress: true });
      if (!new URLSearchParams(location.search).get("before")) {
        const query = new URLSearchParams(location.search);
        query.set("part", "instants"); query.delete("start"); query.delete("end");
        await fill(document.getElementById("instants"), `${timeline.dataset.base}/timeline?${query}`);
      }
    });
    addEventListener("pagehide", () => source.close());
  }

  // --- sizes in the list of tables -----------------------------------------------------------------------------------
  const sizes = [...new Set([...document.querySelectorAll("[data-size]")].map((cell) => cell.dataset.size))];
  const bytes = (value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let place = 0;
    while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
    return place ? `${value.toPrecision(3)} ${units[place]}` : `${value} B`;
  };
  const fillSizes = async () => {
    for (const id of sizes) {
      const answer = await fetch(`/api/v1/tables/${encodeURIComponent(id)}/size`, { credentials: "same-origin" });
      if (!answer.ok) continue;
      const facts = await answer.json();
      for (const cell of document.querySelectorAll(`[data-size="${CSS.escape(id)}"]`)) {
        const value = facts[cell.dataset.field];
        if (value !== null) cell.textContent = cell.dataset.field === "bytes" ? bytes(value) : value.toLocaleString("en");
      }
    }
  };

  fillParts(document);
  fit();
  fillSizes();
  document.querySelectorAll("[data-main]").forEach(fillMain);
})();
