// What the page has beside the browser: the library of charts, and what a page in one file carries.
declare const echarts: any;

interface Window {
  palaestrai?: { home: string; title: string | null; resources: Record<string, any> };
}
