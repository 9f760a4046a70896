import{u as e}from"./chunk-EYZ26TQ3.js";var a=({prefix:r="pf-random-id-",children:d})=>{let t=e(r);return d(t)};a.displayName="GenerateId";export{a};
