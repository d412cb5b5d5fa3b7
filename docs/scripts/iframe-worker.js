// Enables search in pages opened from disk: browsers do not start workers under file://, so the script runs in a hidden frame.
if (location.protocol === "file:") {
  const load = (frame, url) =>
    new Promise((resolve, reject) => {
      const script = frame.contentDocument.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      frame.contentDocument.body.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      const inner = this.frame.contentDocument;
      inner.open();
      inner.write("<!doctype html><title>search</title><body>");
      inner.close();
      this.frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(this.frame, url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
