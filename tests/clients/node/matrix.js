// What the scripts of the matrix have in common; see tests/clients/python/matrix.py.

import { z } from "zod";

export const TOKENS = 24;
export const TOP = 2;
export const SLOWLY = "slowly";
export const WET = "It is wet.";
export const DESCRIPTION = "The weather in a town.";
export const Weather = z
  .object({ town: z.enum(["Bonn", "Oslo"]), days: z.number().int().min(0).max(9) })
  .strict();

// Each feature by itself: where one breaks the others are told all the same.
export async function cellsOf(features) {
  const cells = {};
  for (const [name, feature] of Object.entries(features)) {
    try {
      cells[name] = await feature();
    } catch (error) {
      cells[name] = { broken: error.stack ?? String(error) };
    }
  }
  return cells;
}

// Whether soon nothing runs any more, while this program lives on.
export async function freeAgain(base, key) {
  const until = Date.now() + 5000;
  while (Date.now() < until) {
    const answer = await fetch(`${base}/status`, { headers: { Authorization: `Bearer ${key}` } });
    if ((await answer.json()).running === 0) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

// The error that it ends with, as its client tells it.
export async function failure(work) {
  try {
    await work();
  } catch (error) {
    return {
      kinds: [error.constructor.name, error.name],
      code: error.code ?? error.data?.error?.code ?? null,
      message: error.message,
    };
  }
  return { kinds: [], code: null, message: "nothing failed" };
}

export async function gathered(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}
