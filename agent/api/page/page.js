"use strict";
// Asks every two seconds for what has changed and puts only that into the page: what stays the same stays
// the same node, with its focus and its place.
{
  const PERIOD = 2000;
  const PATIENCE = 10000;
  const title = document.title;
  const link = document.getElementById("link");
  const lit = new CSSStyleSheet();
  document.adoptedStyleSheets = [lit];
  let tag = "";
  let asked = "";
  let timer = 0;
  let since = null;
  let running = null;

  const live = () => document.getElementById("live");
  const pods = () => [...document.querySelectorAll("details.pod")];

  function address() {
    const scale = Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
    const width = Math.floor(document.getElementById("machine").clientWidth / scale / 20) * 20;
    const query = new URLSearchParams({ width, scale: scale.toFixed(2) });
    for (const pod of pods()) if (pod.open) query.append("open", pod.dataset.uid);
    return "/live?" + query;
  }

  async function refresh() {
    clearTimeout(timer);
    running?.abort();
    const mine = (running = new AbortController());
    const url = address();
    try {
      const signal = AbortSignal.any([mine.signal, AbortSignal.timeout(PATIENCE)]);
      const headers = tag && url === asked ? { "If-None-Match": tag } : {};
      const answer = await fetch(url, { headers, cache: "no-store", signal });
      if (answer.status === 200) {
        show(await answer.text());
        [asked, tag] = [url, answer.headers.get("ETag")];
      } else if (answer.status !== 304) {
        throw new Error(answer.status);
      }
      reached();
    } catch {
      if (mine.signal.aborted) return;
      lost();
    }
    if (mine === running && !document.hidden) timer = setTimeout(refresh, PERIOD);
  }

  function reached() {
    since = new Date();
    say("Live: refreshed every 2 seconds.", false);
  }

  function lost() {
    const time = since ? "since " + since.toLocaleTimeString() : "yet";
    say(`No answer from numalet ${time}: this may be out of date. Trying again.`, true);
  }

  function say(text, wrong) {
    if (link.textContent !== text) link.textContent = text;
    link.classList.toggle("lost", wrong);
  }

  function show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("live");
    const focused = document.activeElement;
    patch(live(), fresh);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    document.title = `${live().dataset.state} · ${title}`;
  }

  function patch(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
      old.replaceWith(fresh);
    } else if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
    } else {
      patchAttributes(old, fresh);
      patchChildren(old, fresh);
    }
  }

  function patchAttributes(old, fresh) {
    const own = (name) => name === "open"; // whether a pod is open, the reader decides
    for (const { name } of [...old.attributes])
      if (!own(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function patchChildren(old, fresh) {
    const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    const wanted = new Set([...fresh.children].map((child) => child.id));
    for (const [id, child] of named) if (!wanted.has(id)) child.remove();
    let place = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const known = child.id ? named.get(child.id) : place && !place.id ? place : null;
      if (!known) {
        old.insertBefore(child, place);
      } else {
        if (known === place) place = place.nextSibling;
        else old.insertBefore(known, place);
        patch(known, child);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function light(pod) {
    const others = pod ? `#picture .cpu:not([data-pod=${CSS.escape(pod)}]) { opacity: 0.25 }` : "";
    lit.replaceSync(others);
  }

  const podOf = (target) => target.closest?.("details.pod")?.dataset.pod;

  document.addEventListener("toggle", (event) => event.target.matches("details.pod") && refresh(), true);
  document.addEventListener("pointerover", (event) => light(podOf(event.target)));
  document.addEventListener("focusin", (event) => light(podOf(event.target)));
  document.addEventListener("focusout", () => light());
  document.addEventListener("click", (event) => {
    const cpu = event.target.closest("#picture [data-pod]");
    const pod = cpu && pods().find((one) => one.dataset.pod === cpu.dataset.pod);
    if (event.target.closest(".fetch")) {
      event.preventDefault();
      refresh();
    } else if (pod) {
      pod.open = true;
      pod.querySelector("summary").focus();
    }
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });
  let wide = 0;
  new ResizeObserver(() => {
    const width = document.getElementById("machine").clientWidth;
    if (width !== wide) {
      wide = width;
      refresh();
    }
  }).observe(document.body);
}
