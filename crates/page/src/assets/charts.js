// Moves one cursor over all charts of a page. Every chart can be read without it.
const WIDTH = 2000;
const expand = (texts) => texts.split('|').flatMap((run) => {
  const [text, n] = run.split('*');
  return Array(+(n ?? 1)).fill(text);
});
const HOUR = 3600000;

/** Makes the charts below this element follow one cursor. Returns a function that moves it. */
export function follow(root = document) {
  const charts = [...root.querySelectorAll('[data-cursor]')].map((chart) => {
    const [from, width, n] = chart.dataset.cursor.split(' ').map(Number);
    const values = [...chart.querySelectorAll('[data-values]')].map((element) => ({ element }));
    return { chart, from, width, n, values, plots: [...chart.querySelectorAll('.ch')] };
  });
  const scrub = root.querySelector('[data-scrub]');
  const range = scrub && { from: +scrub.min, to: +scrub.max };
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone: 'UTC', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit',
    second: range && range.to - range.from < HOUR ? '2-digit' : undefined,
  });
  const move = (at) => {
    for (const { chart, from, width, n, values } of charts) {
      const column = Math.max(0, Math.min(n - 1, Math.floor((at - from) / width)));
      for (const value of values) {
        value.texts ??= expand(value.element.dataset.values);
        value.element.textContent = value.texts[column];
      }
      const when = chart.querySelector('[data-when]');
      if (when) when.textContent = format.format(at);
      const { from: start, to: end } = range ?? { from, to: from + n * width };
      const middle = n === 1 ? at : from + (column + 0.5) * width;
      const place = Math.max(0, Math.min(1, (middle - start) / (end - start)));
      for (const line of chart.querySelectorAll('path.cur')) {
        line.setAttribute('d', `M${Math.round(place * WIDTH)} 0v500`);
      }
    }
    if (scrub) {
      scrub.value = at;
      scrub.setAttribute('aria-valuetext', format.format(at));
    }
  };
  if (range) {
    scrub.addEventListener('input', () => move(+scrub.value));
    for (const { plots } of charts) {
      for (const plot of plots) {
        const point = (event) => {
          const box = plot.getBoundingClientRect();
          const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
          move(Math.round(range.from + share * (range.to - range.from)));
        };
        plot.addEventListener('pointermove', (event) => {
          if (event.pointerType === 'mouse' || event.buttons) point(event);
        });
        plot.addEventListener('pointerdown', point);
      }
    }
  }
  return move;
}
