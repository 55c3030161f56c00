// Questions to begin with, each of which drafters know another amount of.

const JSON_TO_CHANGE = `Repeat this JSON with "status" changed from "draft" to "final":

\`\`\`json
{
  "title": "A walk along the northern shore",
  "author": "Ingrid Solheim",
  "status": "draft",
  "tags": ["walking", "coast", "camping", "lighthouse"],
  "images": ["lighthouse.jpg", "tent.jpg", "station.jpg"],
  "comments": true
}
\`\`\``;
// A label, what it says, and the question.
export const SAMPLES = [
  ["Repeat with a change", "A JSON document with one other value: drafters know most of it.", JSON_TO_CHANGE],
  ["Code", "A Python function that finds palindromes, with examples.", "Write a Python function that checks whether a word is a palindrome, with three example calls."],
  ["Free prose", "Why the sky is blue: hard to foresee.", "Why is the sky blue? Answer in three sentences."],
];
