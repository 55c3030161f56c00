// What the reader has set on this page, kept between visits.

const DEFAULTS = {
  texts: {},
  colours: true,
  probabilities: true,
  compare: "off",
  singleKeys: true,
  current: null,
};
export const COMPARISONS = ["off", "one after another", "at once"];

export class Settings {
  constructor(store) {
    this.store = store;
    this.values = cleaned({ ...DEFAULTS, ...store.settings() });
  }

  // Change some of them.
  keep(changes) {
    this.values = { ...this.values, ...changes };
    try {
      this.store.saveSettings(this.values);
    } catch {
      // No room: they hold until the page is closed.
    }
  }
}

function cleaned(values) {
  const compare = COMPARISONS.includes(values.compare) ? values.compare : "off";
  const texts = values.texts && typeof values.texts === "object" ? values.texts : {};
  return { ...values, compare, texts };
}
