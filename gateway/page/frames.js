// Drawing no more often than the screen shows, and less often where drawing takes long.

const SHARE = 6;

// A function that has `draw` called soon, however often it is called itself.
export function drawnSoon(draw) {
  let waiting = false;
  let took = 0;
  const run = () => {
    waiting = false;
    const begun = performance.now();
    draw();
    took = performance.now() - begun;
  };
  return () => {
    if (waiting) return;
    waiting = true;
    // A page in the background gets no frames: a timer draws there.
    const wait = took > 1000 / 60 / 2 ? took * SHARE : 0;
    if (document.hidden || wait > 0) setTimeout(run, wait);
    else requestAnimationFrame(run);
  };
}
