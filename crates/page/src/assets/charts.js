// Moves one cursor over all charts of a page. Every chart can be read without it.
const WIDTH = 2000;
const HOUR = 3600000;
const known = new WeakMap();

/** The texts of a legend's entry for all columns. */
function textsOf(element) {
  const source = element.dataset.values;
  if (known.get(element)?.source !== source) {
    const texts = source.split('|').flatMap((run) => {
      const [text, n] = run.split('*');
      return Array(+(n ?? 1)).fill(text);
    });
    known.set(element, { source, texts });
  }
  return known.get(element).texts;
}

function rangeOf(chart) {
  const [first, width, n, from, to] = chart.dataset.cursor.split(' ').map(Number);
  return { first, width, n, from, to };
}

const clocks = [undefined, '2-digit'].map((second) => new Intl.DateTimeFormat('en-GB', {
  timeZone: 'UTC', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second,
}));

function textOf(at, { from, to }) {
  return clocks[+(to - from < HOUR)].format(at);
}

/** Moves the cursor of all charts. Other scripts hear of it by the event `cursor`. */
export function moveCursor(at) {
  for (const chart of document.querySelectorAll('[data-cursor]')) {
    const { first, width, n, from, to } = rangeOf(chart);
    const column = Math.max(0, Math.min(n - 1, Math.floor((at - first) / width)));
    for (const value of chart.querySelectorAll('[data-values]')) {
      value.textContent = textsOf(value)[column];
    }
    const when = chart.querySelector('[data-when]');
    if (when) when.textContent = textOf(at, { from, to });
    const middle = n === 1 ? at : first + Math.floor((column + 0.5) * width);
    const place = Math.max(0, Math.min(1, (middle - from) / (to - from)));
    for (const line of chart.querySelectorAll('path.cur')) {
      line.setAttribute('d', `M${Math.round(place * WIDTH)} 0v500`);
    }
  }
  for (const scrub of document.querySelectorAll('[data-scrub]')) {
    scrub.value = at;
    scrub.setAttribute('aria-valuetext', textOf(at, { from: +scrub.min, to: +scrub.max }));
  }
  dispatchEvent(new CustomEvent('cursor', { detail: { at } }));
}

/* The pointer moves it while it is over a plot. The field and a click keep it where it is: other
   scripts hear of that by the event `moment`, with nothing for the present. */
const moment = () => new URL(location).searchParams.get('at');
let chosen = moment() && +moment();
function rest() {
  const scrub = document.querySelector('[data-scrub]');
  moveCursor(chosen ?? +(scrub?.max ?? Date.now()));
}
function choose(at, isLast) {
  chosen = isLast ? null : at;
  rest();
  dispatchEvent(new CustomEvent('moment', { detail: { at: chosen } }));
}
const PLOT = '[data-cursor] .ch:is([role=img],.over)';
function pointed(event) {
  const plot = event.target.closest?.(PLOT);
  if (!plot) return null;
  const { from, to } = rangeOf(plot.closest('[data-cursor]'));
  const box = plot.getBoundingClientRect();
  const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  return Math.round(from + share * (to - from));
}
function point(event) {
  const at = pointed(event);
  if (at !== null && (event.pointerType === 'mouse' || event.buttons)) moveCursor(at);
}
addEventListener('input', ({ target }) => {
  if (target.matches('[data-scrub]')) moveCursor(+target.value);
});
addEventListener('change', ({ target }) => {
  if (target.matches('[data-scrub]')) choose(+target.value, +target.value + +target.step > +target.max);
});
addEventListener('pointermove', point);
addEventListener('pointerdown', point);
addEventListener('pointerout', (event) => {
  if (event.target.closest?.(PLOT) && !event.relatedTarget?.closest?.(PLOT)) rest();
});
addEventListener('click', (event) => {
  if (!event.target.closest?.('.over') || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  choose(pointed(event), false);
});
addEventListener('changed', rest);
