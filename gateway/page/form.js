// The form of the parameters: what it says is what the next question is asked with.

import { el } from "./dom.js";
import { drafterOptions, FIELDS, modelOptions, readValues } from "./parameters.js";

export class ParameterForm {
  // `groups` holds a place for each group of fields; `changed(texts)` hears what to keep.
  constructor({ groups, texts, changed }) {
    this.fields = new Map();
    this.problems = new Map();
    this.changed = changed;
    for (const field of FIELDS) groups[field.group].append(this.#field(field, texts[field.name]));
    this.fields.get("model").closest(".field").hidden = true; // until there are several
    this.read();
  }

  // The values as `readValues` gives them; what is wrong is shown beside its field.
  read() {
    const { values, problems } = readValues(this.texts());
    for (const [name, node] of this.problems) {
      node.textContent = problems[name] ?? "";
      this.fields.get(name).setAttribute("aria-invalid", String(name in problems));
    }
    return { values, valid: Object.keys(problems).length === 0 };
  }

  texts() {
    return Object.fromEntries([...this.fields].map(([name, field]) => [name, field.value]));
  }

  clear() {
    for (const field of this.fields.values()) field.value = "";
    this.#change();
  }

  // Where there is only one there is nothing to choose. Returns the one that is chosen.
  offerModels(models) {
    const select = this.fields.get("model");
    const chosen = models.find(({ id }) => id === select.value);
    select.replaceChildren(...optionsOf(modelOptions(models)));
    select.value = chosen && models.length > 1 ? chosen.id : "";
    select.closest(".field").hidden = models.length < 2;
    return chosen ?? models[0];
  }

  // The drafters are the package's own.
  offerDrafters(drafters, usual) {
    const select = this.fields.get("drafter");
    const { value } = select;
    const options = drafterOptions(drafters, usual);
    if (value !== "" && !options.some(([each]) => each === value)) options.push([value, value]);
    select.replaceChildren(...optionsOf(options));
    select.value = value;
  }

  // The first field with a problem, for who asks all the same.
  focusProblem() {
    for (const field of this.fields.values()) {
      if (field.getAttribute("aria-invalid") !== "true") continue;
      field.focus();
      return;
    }
  }

  #field(field, text = "") {
    const id = `parameter-${field.name}`;
    const problem = el("span", { class: "problem", id: `${id}-problem` });
    const attributes = { id, "aria-describedby": `${id}-problem`, oninput: () => this.#change() };
    const input = field.kind === "choice"
      ? el("select", attributes, optionsOf(withKept(field.options, text)))
      : el("input", {
        ...attributes, type: "text", inputmode: "decimal", autocomplete: "off", placeholder: "As set",
      });
    input.value = text;
    this.fields.set(field.name, input);
    this.problems.set(field.name, problem);
    const name = field.kind === "choice" ? "field wide" : "field";
    return el("div", { class: name }, el("label", { for: id }, field.label), input, problem);
  }

  #change() {
    this.read();
    this.changed(this.texts());
  }
}

// What was chosen when the page was open last is among the options before the gateway has answered.
function withKept(options, text) {
  const known = text === "" || options.some(([value]) => value === text);
  return known ? options : [...options, [text, text]];
}

function optionsOf(options) {
  return options.map(([value, label]) => el("option", { value }, label));
}
