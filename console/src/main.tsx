import "@patternfly/react-core/dist/styles/base.css";
import { createRoot } from "react-dom/client";
import { takePlace } from "./app/login";
import { takeProof } from "./api/proof";
import { Console } from "./app/router";
import "./app/console.css";

takeProof();
const place = takePlace();
if (place) window.history.replaceState(undefined, "", `/console${place}`);
createRoot(document.getElementById("root")!).render(<Console />);
