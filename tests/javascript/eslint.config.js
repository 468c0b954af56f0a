import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/vendor/**"] },
  js.configs.recommended,
  {
    languageOptions: { globals: { ...globals.browser, echarts: "readonly" } },
    rules: {
      "eqeqeq": "error",
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-unused-vars": ["error", { args: "after-used", argsIgnorePattern: "^_" }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML"].map((property) => (
        { property, message: "Text of users is never markup." }))],
      "max-len": ["error", { code: 180 }],
    },
  },
];
